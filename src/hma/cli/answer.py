"""``hma evaluate`` and ``hma predict``: what a trained run says of new rows."""

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from hma.cli.arguments import (
    Encoding,
    LabelColumns,
    Overwrite,
    RunFolder,
    RunSeed,
    SkipBadFiles,
    SkipUnlabelled,
    at_least,
    open_run,
    output_file,
)
from hma.extras import importing
from hma.options.run import Which


def evaluate(
    run: RunFolder,
    source: str,
    *,
    target: LabelColumns = (),
    skip_missing_labels: SkipUnlabelled = False,
    skip_bad_files: SkipBadFiles = False,
    encoding: Encoding = None,
    seed: RunSeed = None,
) -> None:
    """Score a run on labelled rows, in every inference context.

    Parameters
    ----------
    source
        Labelled rows of the same kind as at training.
    """
    with importing():
        from hma.cli.show import Terminal, row_name, score_table, tell_ignored
        from hma.data import labelled_rows
        from hma.runs.answers import evaluate as evaluate_run
        from hma.runs.source import rows_for, rows_trained_on
        from hma.training import progress_for_terminal

    opened = open_run(run, seed)
    rows = rows_for(
        opened,
        source,
        labelled=True,
        target=target,
        skip_missing_labels=skip_missing_labels,
        skip_bad_files=skip_bad_files,
        encoding=encoding,
    )
    found = evaluate_run(opened, rows, progress=progress_for_terminal(lines=True))
    kind = opened.preparation.target
    scores = {(rows.name, row_name(which, kind)): contexts for which, contexts in found.items()}
    terminal = Terminal()
    scored = len(labelled_rows(rows))
    terminal.print(score_table(scores, title=f"{scored} rows of {source}"))
    if scored < len(rows):
        terminal.say(f"left out {len(rows) - scored} rows without a label")
    known = rows_trained_on(opened, rows)
    if known:
        terminal.say(
            f"{known} of these rows were trained on or taught, so the scores are too good: score "
            "others, or take the test scores that hma train printed"
        )
    tell_ignored(terminal, opened, rows)


def predict(
    run: RunFolder,
    source: str,
    *,
    output: Annotated[Path, Parameter(alias="-o")],
    context: Literal["alone", "batch"] = "alone",
    which: Annotated[Which | None, Parameter(name="--with")] = None,
    batch_size: Annotated[int, Parameter(validator=at_least(1))] = 256,
    overwrite: Overwrite = False,
    skip_bad_files: SkipBadFiles = False,
    encoding: Encoding = None,
    seed: RunSeed = None,
    coverage: float | None = None,
) -> None:
    """Write a prediction for every row, as CSV or Parquet.

    Of classes the label, its probability and that of every class; of yes/no labels the
    probability of each; of a number its value.

    Parameters
    ----------
    source
        Rows of the same kind as at training; labels are not needed and not looked at.
    output
        The file, .csv or .parquet; it appears when the last row is done.
    context
        'alone' never lets other rows change a row's prediction; 'batch' lets it see the rows
        beside it in the source, --batch-size of them together, and warns if they come in an order.
    which
        What answers: one of the candidates, or the mixture; by default what hma train deployed.
    batch_size
        Rows at a time.
    coverage
        Promise that this share of rows such as the validation rows, 0.95 for instance, has its true
        label in the column labels, or its number between two more, and call rows 'unknown' that are
        less familiar to the memory than that share of them.
    """
    with importing():
        from hma.cli.show import Terminal, tell_ignored, warnings_as_lines
        from hma.runs.answers import ENDINGS
        from hma.runs.answers import predict as predict_run
        from hma.runs.coverage import Covered
        from hma.runs.source import rows_for
        from hma.training import progress_for_terminal, progress_ticker

    output = output_file(output, overwrite=overwrite, endings=ENDINGS)
    opened = open_run(run, seed)
    rows = rows_for(
        opened, source, skip_bad_files=skip_bad_files, labelled=False, encoding=encoding
    )
    done, covered = 0, None
    terminal = Terminal()
    how: dict[str, Any] = {"which": which, "context": context}
    if coverage is not None:
        covered = Covered(opened, coverage, **how, progress=progress_for_terminal(lines=True))
    how |= {"batch_size": batch_size, "covered": covered}
    with (
        progress_ticker(progress_for_terminal(lines=True), "predicting") as tick,
        warnings_as_lines(),
    ):
        for done in predict_run(opened, rows, output, **how):
            tick(done, len(rows))
    terminal.say(f"wrote {done} predictions to {output}")
    if not done:
        terminal.say(f"{source} has 0 rows, so the file has a header and nothing else")
    for line in [] if covered is None else covered.lines():
        terminal.say(line)
    tell_ignored(terminal, opened, rows)
