"""What answers new rows: the mixture that validation decides, or the one that was asked for."""

import math
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from hma.attention.config import HMAConfig
from hma.backbones.frozen import Frozen
from hma.backbones.mlp import mlp
from hma.errors import UserError
from hma.io.json_files import read_json, write_json
from hma.runs import MEMORY, MIXTURE, PLAIN, Run, RunOptions, train
from hma.runs.answers import evaluate, predict
from hma.runs.coverage import CALIBRATIONS
from hma.runs.deployment import DEPLOYMENT, Deployment, fitted_deployment
from hma.runs.source import prepared_from, rows_for
from hma.targets import Classes
from hma.training import SilentProgress, UserRecipe, all_logits


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(120, 3)), draw.integers(0, 2, 120)
    x[:, 0] += 3 * y
    lines = ["a,b,c,label", *(f"{a},{b},{c},{k}" for (a, b, c), k in zip(x, y, strict=True))]
    (folder / "rows.csv").write_text("\n".join(lines))
    return RunOptions(
        source=str(folder / "rows.csv"),
        target=("label",),
        config=HMAConfig(queue_size=8, slots_per_class=2, label_dim=8),
        recipe=UserRecipe(epochs=2).fixed(),
    )


@pytest.fixture(scope="module")
def run(options, tmp_path_factory):
    said = []
    folder = tmp_path_factory.mktemp("deployed") / "run"
    found = train(options, folder, progress=SilentProgress(), say=said.append)
    return found, said


@pytest.fixture
def copy(run, tmp_path):
    return Run.open(shutil.copytree(run[0].folder, tmp_path / "copy"))


def validation_logits(run):
    split = prepared_from(run.options).task.validation
    judged = run.before  # validation rows judge the models that had not seen them
    return {w: all_logits(judged.learner(w), split, batch_size=256) for w in run.candidates}, split


def written(run):
    return {str(p): p.read_bytes() for p in sorted(run.folder.rglob("*")) if p.is_file()}


def test_the_mixture_is_deployed_with_the_shares_and_losses_of_the_validation_rows(run):
    found, said = run
    deployed = found.deployed
    logits, split = validation_logits(found)
    y = split.labels.numpy()
    chances = {w: softmax(z.double().numpy(), axis=1) for w, z in logits.items()}
    mixed = sum(deployed.shares[w] * p for w, p in chances.items())
    assert deployed.which == MIXTURE
    assert math.fsum(deployed.shares.values()) == pytest.approx(1.0)
    assert deployed.rows == len(y)
    for which, p in [*chances.items(), (MIXTURE, mixed)]:
        assert deployed.losses[which] == pytest.approx(log_loss(y, p, labels=[0, 1]), rel=1e-5)
    own = np.array([deployed.shares[w] for w in chances])
    alone = len(y) * np.array([deployed.losses[w] for w in chances])
    favour = 0.02 + len(own) * softmax(-alone / 5)
    draw = np.random.default_rng(1)
    for share in [*draw.dirichlet(np.ones(len(own)), 200), *draw.dirichlet(100 * own, 200)]:
        one = np.tensordot(share, np.stack([*chances.values()]), 1)
        cost = len(y) * log_loss(y, one, labels=[0, 1]) - favour @ np.log(share)
        assert len(y) * deployed.losses[MIXTURE] - favour @ np.log(own) <= cost + 1e-6
    assert deployed.why in said


def test_the_line_names_shares_losses_and_the_better_network():
    shares = {"plain": 0.2, "memory": 0.46, "logistic": 0.0, "boosting": 0.34}
    losses = {"plain": 0.4, "memory": 0.35, "logistic": 0.9, "boosting": 0.36, "mixture": 0.31}
    found = Deployment(which=MIXTURE, shares=shares, losses=losses, target=Classes(2), rows=9)
    assert found.why == (
        "deployed: a mixture, 46% the memory, 34% gradient boosting, 20% the plain backbone; "
        "validation loss 0.3100 against 0.3500 for the best one alone (the memory); of the two "
        "networks validation prefers the memory"
    )
    assert found.asked("boosting").why == (
        "deployed: gradient boosting; validation loss 0.3600 against 0.3500 for the best of the "
        "others (the memory); of the two networks validation prefers the memory"
    )


def test_without_validation_rows_the_two_networks_share_the_answer():
    said = {name: torch.empty(0, 2) for name in ("plain", "memory", "neighbours")}
    found = fitted_deployment(said, torch.empty(0, dtype=torch.long), Classes(2), {})
    assert found.shares == {"plain": 0.5, "memory": 0.5, "neighbours": 0.0}
    assert found.why == (
        "deployed: a mixture, 50% the plain backbone, 50% the memory; there are no validation "
        "rows to decide by"
    )


def test_another_deployment_of_a_finished_run_trains_nothing(options, copy):
    before = written(copy)
    said = []
    again = train(options, copy.folder, deploy=PLAIN, progress=SilentProgress(), say=said.append)
    assert again.deployed.which == PLAIN
    assert again.deployed.why in said
    changed = {name for name, data in written(copy).items() if before.get(name) != data}
    # thresholds are of who answers
    (thresholds,) = changed - {str(copy.folder / DEPLOYMENT)}
    assert Path(thresholds).parent == copy.folder / CALIBRATIONS
    kept = train(options, copy.folder, progress=SilentProgress())
    assert kept.deployed.which == PLAIN  # who asks for nothing changes nothing
    back = train(options, copy.folder, deploy=MIXTURE, progress=SilentProgress())
    assert written(back) == before | {thresholds: Path(thresholds).read_bytes()}


def test_who_is_not_trained_cannot_be_deployed(options, tmp_path):
    with pytest.raises(UserError, match=r"--deploy must be one of mixture, memory .*got plain"):
        train(options, tmp_path / "new", compare=False, deploy=PLAIN)
    assert not (tmp_path / "new").exists()


def test_predictions_are_those_of_what_is_deployed_or_asked_for(run, tmp_path):
    found, _ = run
    rows = rows_for(found, found.options.source, labelled=False)
    every = (None, MIXTURE, *found.candidates)
    for which in every:
        list(predict(found, rows, tmp_path / f"{which}.csv", which=which))
    text = {which: (tmp_path / f"{which}.csv").read_text() for which in every}
    assert text[None] == text[MIXTURE]
    assert len(set(text.values())) == len(every) - 1
    column = "probability of 1"
    said = {w: np.genfromtxt(tmp_path / f"{w}.csv", delimiter=",", names=True) for w in every}
    name = column.replace(" ", "_")
    mean = sum(share * said[w][name] for w, share in found.deployed.shares.items())
    np.testing.assert_allclose(said[None][name], mean, atol=2e-6)


def test_scores_of_the_mixture_are_those_of_its_own_answers(run):
    found, _ = run
    source = rows_for(found, found.options.source, labelled=True)
    scored = evaluate(found, source)
    assert list(scored) == [*found.candidates, MIXTURE]
    split = found.preparation.split(source)
    for context in ("alone", "batch", "batch-sorted"):
        size = found.options.recipe.eval_batch_size
        z = all_logits(found.learner(MIXTURE), split, batch_size=size, context=context)
        expected = log_loss(split.labels, softmax(z.double().numpy(), axis=1))
        assert scored[MIXTURE][context]["nll"] == pytest.approx(expected, rel=1e-5)


# ------------------------------------------------------------------ faults


def test_a_run_killed_before_its_deployment_goes_on(options, copy):
    before = written(copy)
    (copy.folder / DEPLOYMENT).unlink()
    (copy.folder / "memory" / "model" / "hma.json").unlink()  # written after the deployment
    with pytest.raises(UserError, match="did not finish; run its hma train command again"):
        Run.open(copy.folder)
    again = train(options, copy.folder, progress=SilentProgress())
    after = written(again)
    for name in ("deployment.json", "memory/record.json", "plain/weights.safetensors"):
        assert after[str(copy.folder / name)] == before[str(copy.folder / name)]


KILLED = """
import os, signal, sys
from pathlib import Path
from hma.runs import deployment
from hma.runs.options import RunOptions
from hma.runs.train import train
from hma.training import SilentProgress
def killed(self, folder):
    os.kill(os.getpid(), signal.SIGKILL)
deployment.Deployment.write = killed
train(RunOptions.read(Path(sys.argv[1])), Path(sys.argv[2]), progress=SilentProgress())
"""


def same_threads():
    """Return an environment in which torch rounds as it does here."""
    return os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())}


def test_a_kill_between_records_and_deployment_is_no_finished_run(options, run, tmp_path):
    path = run[0].folder / "run.json"
    command = [sys.executable, "-c", KILLED, str(path), str(tmp_path / "run")]
    ended = subprocess.run(command, capture_output=True, text=True, env=same_threads())
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert (tmp_path / "run" / "memory" / "record.json").is_file()
    with pytest.raises(UserError, match="did not finish"):
        Run.open(tmp_path / "run")
    again = train(options, tmp_path / "run", progress=SilentProgress())
    assert again.deployed == run[0].deployed


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda v: v | {"schema": 9}, "another version of hma"),
        (lambda v: v | {"shares": {"plain": 0.5}}, "its shares are no shares of 1"),
        (lambda v: v | {"shares": {"plain": 2.0, "memory": -1.0}}, "its shares are no shares of 1"),
        (lambda v: v | {"shares": {"oracle": 1.0}}, "it names 'oracle', which no run has"),
        (lambda v: v | {"deployed": "oracle"}, "it deploys 'oracle', which has no share"),
        (lambda v: v | {"shares": 3}, "shares must be an object, got 3"),
    ],
)
def test_a_damaged_deployment_is_one_line_with_its_remedy(copy, change, said):
    path = copy.folder / DEPLOYMENT
    write_json(path, change(read_json(path, dict)), sealed=True)
    with pytest.raises(UserError) as caught:
        _ = copy.deployed
    assert said in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert "remove it and run its hma train command again" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_changed_deployment_is_refused_by_its_hash_and_made_again_once_removed(options, copy):
    path = copy.folder / DEPLOYMENT
    before = path.read_bytes()
    path.write_bytes(before.replace(b'"deployed": "mixture"', b'"deployed": "memory"'))
    for use in (lambda: copy.deployed, lambda: train(options, copy.folder)):
        with pytest.raises(UserError, match="does not match its own hash"):
            use()
    path.unlink()
    train(options, copy.folder, progress=SilentProgress())
    assert path.read_bytes() == before


def test_shares_are_fitted_again_where_a_candidate_was_trained_again(options, copy):
    path = copy.folder / DEPLOYMENT
    values = read_json(path, dict)
    stale = values | {"weights_sha256": values["weights_sha256"] | {"plain": "0" * 64},
                      "shares": {"plain": 1.0}, "deployed": "plain"}  # fmt: skip
    write_json(path, stale, sealed=True)
    again = train(options, copy.folder, progress=SilentProgress())
    assert read_json(path, dict) == values | {"deployed": "plain"}
    assert again.deployed.which == PLAIN


def test_a_folder_that_lost_its_deployment_says_how_to_get_it_back(copy):
    (copy.folder / DEPLOYMENT).unlink()
    with pytest.raises(
        UserError, match=r"deployment\.json is missing.*hma train command of this run again"
    ):
        _ = copy.deployed


def test_a_candidate_that_is_not_there_is_named(copy):
    shutil.rmtree(copy.folder / "boosting")
    with pytest.raises(UserError, match=r"has no 'boosting'; it has plain, memory, logistic"):
        copy.learner("boosting")


def test_the_memory_is_selected_in_the_context_that_answers(run):
    found, _ = run
    assert found.record(MEMORY).setup["method"]["contexts"][0] == "alone"
    assert found.learner(MEMORY).contexts[0] == "alone"


def test_the_logistic_candidate_is_that_of_scikit_learn(run):
    found, _ = run
    task = prepared_from(found.options).task
    splits = {"train": task.train, "validation": task.validation, "test": task.tests["test"]}
    x, y = {}, {}
    for name, split in splits.items():
        batch = split.batch(torch.arange(len(split)))
        x[name], y[name] = batch.x.numpy(), batch.y.numpy()
    strengths = found.learner("logistic").module.choices
    models = [
        make_pipeline(StandardScaler(), LogisticRegression(C=c, max_iter=200)).fit(
            x["train"], y["train"]
        )
        for c in strengths
    ]
    best = min(models, key=lambda m: log_loss(y["validation"], m.predict_proba(x["validation"])))
    every = [np.concatenate([part["train"], part["validation"]]) for part in (x, y)]
    best = best.fit(*every)  # with what validation rows chose, all rows train
    scored = found.record("logistic").tests["test"]["alone"]
    assert math.isclose(scored["accuracy"], best.score(x["test"], y["test"]), abs_tol=1e-6)
    expected = log_loss(y["test"], best.predict_proba(x["test"]))
    assert math.isclose(scored["nll"], expected, rel_tol=1e-2)
    assert found.candidates == ("plain", "memory", "logistic", "neighbours", "kernel", "boosting")


def test_frozen_features_are_standardised_by_the_training_rows_and_kept():
    backbone = Frozen(mlp(3, hidden=(5,)), standardised=True)
    x = torch.randn(40, 3)
    raw = backbone.encoder(x).detach()
    torch.testing.assert_close(backbone(x), raw)
    assert backbone.wants_statistics
    backbone.take_statistics(raw)
    assert not backbone.wants_statistics
    torch.testing.assert_close(backbone(x).mean(dim=0), torch.zeros(5), atol=1e-5, rtol=0)
    assert math.isclose(float(backbone(x).var(dim=0, correction=0).mean()), 1, rel_tol=1e-4)
    again = Frozen(mlp(3, hidden=(5,)), standardised=True)
    again.load_state_dict(backbone.state_dict())
    torch.testing.assert_close(again(x), backbone(x))
    assert "mean" not in Frozen(mlp(3, hidden=(5,))).state_dict()
