"""What every candidate of a run says of its test rows: asked once, and kept in its folder."""

import hashlib

from torch import Tensor

from hma.io.feature_file import read_features, write_features
from hma.io.files import file_sha256
from hma.report.run.trial import MEMORY as HMA
from hma.report.seeds import Candidate, SeedAnswers
from hma.runs.deployment import MEMORY, PLAIN, Which, title
from hma.runs.folder import Run
from hma.runs.held_out import taught_held_out
from hma.runs.source import training_task, with_features
from hma.targets import Target
from hma.training import Progress, all_logits, counted

DEPLOYED = Candidate("deployed", "deployed")
ANSWERS = "answers"


def has_answers(run: Run) -> bool:
    """Tell whether the answers of a run are kept, so that nothing of it has to be computed."""
    return read_features(run.folder, _key(run), {}, what=ANSWERS) is not None


def answers_of(run: Run, progress: Progress | None = None) -> SeedAnswers:
    """Return what every candidate, and what was deployed, says of the test rows of a run.

    Each answers as it answers new rows, in its first context. Without test rows these are the
    validation rows. Rows that the memory was taught are left out, and test sets without others.

    Args:
        run: A finished run; its data is opened only where its answers are not kept.
        progress: Shows how far it is.
    """
    key = _key(run)
    kept = read_features(run.folder, key, {}, what=ANSWERS)
    if kept is None:
        kept = _asked(run, progress)
        write_features(run.folder, key, kept, what=ANSWERS)
    gone = taught_held_out(run)
    parts: dict[str, dict[str, Tensor]] = {"labels": {}}
    for name, values in kept.items():
        who, _, test = name.partition("/")
        rest = values[~gone[test]] if test in gone else values
        if len(rest):
            parts.setdefault(who, {})[test] = rest
    target, shares = run.preparation.target, run.deployed.counted
    labels = parts.pop("labels")
    deployed = {
        test: target.mixed([parts[which][test] for which in shares], list(shares.values()))
        for test in labels
    }
    said = {_candidate(which, target): parts.get(which, {}) for which in run.candidates}
    places = {
        test: [place for place, out in zip(run.places[test], gone[test], strict=True) if not out]
        if test in gone
        else run.places.get(test, [])
        for test in labels
    }
    return SeedAnswers(
        seed=run.options.seed,
        target=target,
        labels=labels,
        places=places,
        said=said | {DEPLOYED: deployed},
    )


def _candidate(which: Which, target: Target) -> Candidate:
    if which == MEMORY:
        return Candidate(HMA, "memory")
    name = title(which, target).removeprefix("the ")
    return Candidate(name, "plain" if which == PLAIN else "simple")


def _asked(run: Run, progress: Progress | None) -> dict[str, Tensor]:
    task = training_task(run).task
    found: dict[str, Tensor] = {}
    for which in run.candidates:
        learner = run.learner(which)
        known = with_features(run, task, learner, progress)
        tests = known.tests or {"validation": known.validation}
        total = sum(map(len, tests.values()))
        rows, done = run.options.recipe.eval_batch_size, 0
        with counted(progress, "answers") as tick:
            for name, split in tests.items():
                found[f"labels/{name}"] = split.labels
                found[f"{which}/{name}"] = all_logits(learner, split, batch_size=rows)
                tick(done := done + len(split), total)
    return found


def _key(run: Run) -> str:
    """Return a hash of all records and of the memory: other weights or rows answer otherwise."""
    digest = hashlib.sha256(b"answers 1")
    for which in run.candidates:
        digest.update(f"{which} {file_sha256(run.folder / which / 'record.json')}".encode())
    if run.living.chain:
        digest.update(f"memory {run.versions.hashes(run.living.chain)}".encode())
    return digest.hexdigest()
