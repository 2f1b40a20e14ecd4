"""Run jobs in processes of their own, all forked from one that has done the slow imports.

Reads a job per line from standard input as JSON; answers with the process id when it starts and
with the exit code when it ends.
"""

import json
import os
import resource
import signal
import sys
import traceback
import warnings
from pathlib import Path

import torch
from training_cases import EVERYTHING, memory_learner, quietly, small_task

from hma.errors import UserError
from hma.extras import fabric_module
from hma.training import Interrupted, Recipe
from hma.training.log import TensorBoardLog


def train(folder: str, largest_file: int | None = None, **changes) -> int:
    """Train the run of the resume tests in ``folder``; exit as the command line would."""
    if largest_file is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
    task = small_task()
    recipe = Recipe.from_json(EVERYTHING.to_json() | changes)
    try:
        quietly(memory_learner(task), task, recipe, folder=Path(folder))
    except Interrupted as stopped:
        print(stopped)
        return stopped.exit_code
    except UserError as error:
        print(error)
        return 2
    print("done")
    return 0


def together(folder: str, processes: int, case: str) -> int:
    """Train with several processes; see test_several_processes."""
    import test_several_processes as cases

    cases.train_together(Path(folder), processes, case)
    return 0


JOBS = {"train": train, "together": together}


def serve() -> None:
    for line in sys.stdin:
        job = json.loads(line)
        child = os.fork()
        if child == 0:
            run(job)
        print(json.dumps({"pid": child}), flush=True)
        _, status = os.waitpid(child, 0)
        print(json.dumps({"code": os.waitstatus_to_exitcode(status)}), flush=True)


def run(job: dict) -> None:
    code = 70
    try:
        output = os.open(job["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.setsid()  # a group of its own, for the test to end with all its members
        signal.signal(signal.SIGINT, signal.default_int_handler)
        code = JOBS[job["name"]](**job["options"])
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    warnings.simplefilter("error")
    torch.set_num_threads(int(os.environ.get("HMA_TEST_THREADS", "1")))  # as in the test
    fabric_module()
    folder = Path(sys.argv[1])
    TensorBoardLog(folder).close()  # for its imports
    serve()
    os._exit(0)  # nothing to clean up, and an ordinary exit takes seconds
