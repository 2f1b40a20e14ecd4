"""What every candidate of a run says of its test rows: asked once, and kept in its folder."""

import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, cast

from torch import Tensor

from hma.data import Task
from hma.io.files import file_sha256
from hma.io.tensor_files import read_features, write_features
from hma.methods import Learner
from hma.methods.learner import Tick
from hma.report.run_report import DEPLOYED
from hma.report.run_report import MEMORY as MEMORY_NAME
from hma.report.run_report import PLAIN as PLAIN_NAME
from hma.report.scoring import ALONE, Answers
from hma.runs.answers import answers
from hma.runs.deployment import MEMORY, MIXTURE, PLAIN, Which, title
from hma.runs.folder import Run
from hma.runs.held_out import judging_splits, taught_held_out
from hma.runs.source import training_task, with_features
from hma.targets import Target
from hma.training import Progress, progress_ticker

ANSWERS = "answers"
LABELS = "labels"
Contexts = dict[str, Tensor]
"""Inference context -> logits ``(N, outputs)``, the learner's first context first."""


class CandidateAnswers(NamedTuple):
    """Logits of every candidate on every test row; without test rows on the validation rows.

    Attributes:
        labels: Test split -> what is true of its rows.
        said: Test split -> candidate -> context -> logits.
    """

    labels: dict[str, Tensor]
    said: dict[str, dict[Which, Contexts]]

    @classmethod
    def ask(
        cls,
        learners: Mapping[Which, Learner],
        seen: Callable[[Which], Task],
        batch_size: int,
        progress: Progress | None = None,
    ) -> "CandidateAnswers":
        """Ask all candidates; under ``torch.distributed`` every process must call.

        Args:
            learners: The candidates.
            seen: Gives the task with rows as a candidate sees them.
            batch_size: Rows per batch; where a row sees its batch it decides who sees whom.
            progress: Shows how far it is.
        """
        found, done = cls({}, {}), 0
        tests = {which: judging_splits(seen(which)) for which in learners}
        total = sum(
            len(split) * len(learners[which].contexts)
            for which, splits in tests.items()
            for split in splits.values()
        )
        with progress_ticker(progress, ANSWERS) as tick:
            for which, learner in learners.items():
                for test, split in tests[which].items():
                    count = partial(_tick_on, tick, done, total)
                    said = answers({which: learner}, split, batch_size, count)
                    done += len(split) * len(learner.contexts)
                    found.labels[test] = split.labels
                    found.said.setdefault(test, {})[which] = said[which]
        return found

    def without(self, rows: Mapping[str, Tensor]) -> "CandidateAnswers":
        """Leave out the rows of each split that ``rows``, ``(N,)`` of bool, names."""

        def rest(test: str, values: Tensor) -> Tensor:
            return values[~rows[test]] if test in rows else values

        left = {test: rest(test, labels) for test, labels in self.labels.items()}
        left = {test: labels for test, labels in left.items() if len(labels)}
        return CandidateAnswers(
            left,
            {
                test: {
                    which: {context: rest(test, logits) for context, logits in said.items()}
                    for which, said in self.said[test].items()
                }
                for test in left
            },
        )

    def mixed(self, target: Target, shares: Mapping[Which, float], test: str) -> Tensor:
        """Return what candidates say of a test split together, each in its first context."""
        each = [first(self.said[test][which]) for which in shares]
        return target.mix_logits(each, list(shares.values()))


def _tick_on(tick: Tick, before: int, total: int, done: int, _: int) -> None:
    tick(before + done, total)


def first(said: Contexts) -> Tensor:
    """Return logits in the context in which new rows are answered."""
    return next(iter(said.values()))


def keep_answers(run: Run, found: CandidateAnswers) -> None:
    """Keep answers in the folder of a run, under the records and the memory that gave them."""
    tensors = {f"{LABELS}/{test}": labels for test, labels in found.labels.items()}
    for test, each in found.said.items():
        for which, said in each.items():
            # Safetensors sorts names, so the place of a context is part of its name.
            for place, (context, logits) in enumerate(said.items()):
                tensors[f"{which}/{place}/{context}/{test}"] = logits.contiguous()
    write_features(run.folder, _key(run), tensors, what=ANSWERS)


def read_answers(run: Run) -> CandidateAnswers | None:
    """Return the answers that are kept; None where nothing is kept of this version."""
    kept = read_features(run.folder, _key(run), {}, what=ANSWERS)
    if kept is None:
        return None
    found = CandidateAnswers({}, {})
    for name in kept:
        if name.startswith(f"{LABELS}/"):
            test = name.removeprefix(f"{LABELS}/")
            found.labels[test] = kept[name]
            found.said[test] = {which: {} for which in run.candidates}
    for name in sorted(kept):  # contexts by their place
        if not name.startswith(f"{LABELS}/"):
            which, _, context, test = name.split("/", 3)
            found.said[test][cast("Which", which)][context] = kept[name]
    return found


def has_answers(run: Run) -> bool:
    """Tell whether the answers of a run are kept, so that nothing of it has to be computed."""
    return read_answers(run) is not None


def candidate_answers(
    run: Run,
    *,
    learners: Mapping[Which, Learner] | None = None,
    task: Task | None = None,
    progress: Progress | None = None,
) -> CandidateAnswers:
    """Return what every candidate says of the test rows of a run: what is kept, or asked now.

    Args:
        run: A finished run; its data is opened only where its answers are not kept.
        learners: Its candidates, where they are loaded already.
        task: Its task, where it is opened already.
        progress: Shows how far it is.
    """
    if (kept := read_answers(run)) is not None:
        return kept
    opened = training_task(run).task if task is None else task
    own = learners if run.judging is run else None
    given = run.judging.learners() if own is None else own
    candidates = {which: one for which, one in given.items() if which != MIXTURE}
    known = with_features(run, opened, candidates[MEMORY], progress)  # one encoder for all
    rows = run.options.recipe.eval_batch_size
    found = CandidateAnswers.ask(candidates, lambda _: known, rows, progress)
    keep_answers(run, found)
    return found


def answers_of(run: Run, progress: Progress | None = None) -> dict[str, Answers]:
    """Return what every candidate, and what was deployed, says of each test set of a run.

    Each answers as it answers new rows, in its first context. Without test rows these are the
    validation rows. Rows that the memory was taught are left out, and test sets without others.

    Args:
        run: A finished run; its data is opened only where its answers are not kept.
        progress: Shows how far it is.
    """
    gone = taught_held_out(run)
    found = candidate_answers(run, progress=progress).without(gone)
    target, shares = run.preparation.target, run.deployed.counted
    answers = {}
    for test, said in found.said.items():
        own = {which: first(said[which]) for which in run.candidates}
        others = {
            candidate_name(which, target): logits
            for which, logits in own.items()
            if which not in (PLAIN, MEMORY)
        }
        answers[test] = Answers(
            labels=found.labels[test],
            memory={ALONE: own[MEMORY]},
            plain={ALONE: own[PLAIN]} if PLAIN in own else {},
            others=others | {DEPLOYED: found.mixed(target, shares, test)},
            target=target,
            places=[
                place for place, out in zip(run.places[test], gone[test], strict=True) if not out
            ]
            if test in gone
            else run.places.get(test, []),
        )
    return answers


def candidate_name(which: Which, target: Target) -> str:
    """Return what pages call a candidate."""
    own: dict[Which, str] = {PLAIN: PLAIN_NAME, MEMORY: MEMORY_NAME}
    return own[which] if which in own else title(which, target).removeprefix("the ")


def _key(run: Run) -> str:
    """Return a hash of all records and of the memory: other weights or rows answer otherwise."""
    digest = hashlib.sha256(b"answers 2")
    for which in run.candidates:
        record = run.judging.candidate_folder(which) / "record.json"
        digest.update(f"{which} {file_sha256(record)}".encode())
    if run.living.chain:
        digest.update(f"memory {run.versions.hashes(run.living.chain)}".encode())
    return digest.hexdigest()
