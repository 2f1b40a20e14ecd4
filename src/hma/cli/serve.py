"""``hma serve``: a run behind HTTP, with a page to ask it and to teach it."""

from typing import Annotated

from cyclopts import Parameter

from hma.cli.arguments import RunFolder, RunSeed, at_least, open_run
from hma.extras import importing, needed


def serve(
    run: RunFolder,
    *,
    host: str = "127.0.0.1",
    port: Annotated[int, Parameter(validator=at_least(0))] = 8000,
    token: Annotated[str | None, Parameter(env_var="HMA_TOKEN")] = None,
    coverage: float | None = None,
    write_wait: float = 3.0,
    seed: RunSeed = None,
) -> None:
    """Answer over HTTP: a page and JSON to predict, explain, teach and forget.

    GET / is the page, /openapi.json describes /predict, /explain, /remember, /forget, /restore,
    /memory, /versions, /run and /health.

    Parameters
    ----------
    host
        Where to listen; this machine alone by default. Beyond it a token is needed.
    port
        Where to listen; 0 takes a port that is free.
    token
        What requests must carry as Authorization: Bearer TOKEN. In HMA_TOKEN other users of this
        machine do not see it.
    coverage
        Share of answers whose set of labels or interval holds the truth, and of rows that are not
        called unknown; 0.95 if not given, where the run kept enough validation rows.
    write_wait
        Seconds that a request to teach, forget or restore waits for another writer before it ends
        with 503 and nothing written.
    """
    with importing():
        for module in ("starlette", "uvicorn"):
            needed(module, "hma serve", extra="serve")
        from hma.cli.show import Terminal
        from hma.serve.server import serve as answer

    opened = open_run(run, seed)
    answer(
        opened,
        host=host,
        port=port,
        token=token,
        coverage=coverage,
        write_wait=write_wait,
        say=Terminal().say,
    )
