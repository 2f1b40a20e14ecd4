"""The command line: each command in a file of its own, gathered here."""

import errno
import sys

from cyclopts import App, CycloptsError

import hma
from hma.cli.answer import evaluate, predict
from hma.cli.audit import audit
from hma.cli.common_options import CommonFirst
from hma.cli.completion import completion
from hma.cli.explain import explain
from hma.cli.living import forget, remember
from hma.cli.memory import memory
from hma.cli.option_problems import expect_usable, in_words
from hma.cli.quickstart import quickstart
from hma.cli.report import report
from hma.cli.results import app as results
from hma.cli.run import run as run_command
from hma.cli.run import tables
from hma.cli.search import search
from hma.cli.serve import serve
from hma.cli.suspects import suspects
from hma.cli.train import COMMON_OF_TRAIN, train
from hma.config import ConfigError
from hma.errors import UserError, printable
from hma.io.checkpoint import CheckpointError
from hma.training import Interrupted

MISTAKES = (UserError, ConfigError, CheckpointError, FileExistsError, FileNotFoundError)
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
COMMANDS = (
    *(quickstart, train, evaluate, predict, explain, audit, report),
    *(remember, forget, memory, suspects, serve),
    *(tables, run_command, search, completion),
)
for command in COMMANDS:
    if command is train:
        long = CommonFirst(name="train")
        long.common = COMMON_OF_TRAIN
        long.default(train)
        app.command(long)
    else:
        app.command(command, name=command.__name__)
app.command(results)


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
