"""The command line: each command in a file of its own, gathered here."""

import errno
import sys
from typing import Literal

from cyclopts import App, CycloptsError

import hma
from hma.cli.answer import evaluate, predict
from hma.cli.audit import audit
from hma.cli.explain import explain
from hma.cli.memory import forget, memory, remember
from hma.cli.option_problems import expect_usable, in_words
from hma.cli.paper import paper
from hma.cli.quickstart import quickstart
from hma.cli.report import report
from hma.cli.results import app as results
from hma.cli.run import run as run_command
from hma.cli.run import tables
from hma.cli.search import search
from hma.cli.serve import serve
from hma.cli.suspects import suspects
from hma.cli.train import train_app
from hma.errors import Interrupted, UserError, printable
from hma.options.config import ConfigError

MISTAKES = (UserError, ConfigError, FileExistsError, FileNotFoundError)
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS)
NO_PLACE = (errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.ELOOP)

app = App(
    name="hma",
    help="Memory for any PyTorch classifier.",
    version=hma.__version__,
    config=expect_usable,
    exit_on_error=False,
    print_error=False,
    suppress_keyboard_interrupt=False,  # so that an interrupted run can say how to continue
)


def completion(shell: Literal["bash", "zsh", "fish"]) -> None:
    """Print what lets a shell complete commands, options and their choices.

    bash: ``hma completion bash >> ~/.bash_completion``; zsh: into a file _cyclopts_hma in
    a folder of $fpath; fish: ``hma completion fish > ~/.config/fish/completions/hma.fish``. A new
    shell knows it.

    Parameters
    ----------
    shell
        Which shell.
    """
    print(app.generate_completion(shell=shell).rstrip("\n"))
    if shell == "bash":  # where it has nothing to offer, as for SOURCE: names of files
        print("complete -o default -F _hma hma")


COMMANDS = (
    *(quickstart, train_app, evaluate, predict, explain, audit, report),
    *(remember, forget, memory, suspects, serve),
    *(tables, run_command, paper, search, results, completion),
)
for command in COMMANDS:
    app.command(command, name=None if isinstance(command, App) else command.__name__)


def run() -> None:
    """Run ``app``; mistakes of the user end with one line and exit code 2."""
    try:
        app(sys.argv[1:])
    except CycloptsError as error:
        _stop(in_words(error), code=2)
    except MISTAKES as error:
        _stop(str(error), code=2)
    except OSError as error:
        if error.errno not in NO_ROOM + NO_PLACE:
            raise
        _stop(f"{error}; earlier results are untouched", code=2)
    except Interrupted as error:
        _stop(str(error), code=error.exit_code)
    except KeyboardInterrupt:
        _stop("interrupted; the same command continues", code=130)


def _stop(message: str, code: int) -> None:
    print(f"hma: {printable(message)}", file=sys.stderr)
    sys.exit(code)
