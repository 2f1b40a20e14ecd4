"""ViT tables on a folder of one's own images, with another model and local weights."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from experiments._vit_tuning import (
    SIZES,
    ablation_rows,
    budgets,
    folder_problem,
    prompt_row,
)
from hma.data.storage import MissingDataError
from hma.errors import UserError
from hma.paper.cells import measure
from hma.paper.experiment_files import load_table
from hma.paper.table import Cell, Table

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
MODEL = "vit_tiny_patch16_224"
SMALL = {**SIZES, "queue_size": 16, "slots_per_class": 2, "top_k": None}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Three classes of ten pictures, told apart by their colour."""
    image = pytest.importorskip("PIL.Image")
    folder = tmp_path_factory.mktemp("pictures")
    generator = torch.Generator().manual_seed(0)
    for channel, name in enumerate(("red", "green", "blue")):
        (folder / name).mkdir()
        for number in range(10):
            pixels = torch.randint(100, (40, 48, 3), generator=generator, dtype=torch.uint8)
            pixels[..., channel] += 100
            image.fromarray(pixels.numpy()).save(folder / name / f"{number}.png")
    return folder


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    from safetensors.torch import save_file

    from hma.extras import needed_beside_torchvision

    timm = needed_beside_torchvision("timm", "this test", extra="vision")
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "tiny.safetensors"
    save_file(timm.create_model(MODEL, num_classes=7).state_dict(), path)
    return path


@pytest.fixture(scope="module")
def table(pictures, weights):
    rows = {
        "vit": prompt_row("vit", tuning="part", recipe={"lr": 1e-2}),
        "prompt-a": prompt_row("prompt-a", tuning="part", recipe={"lr": 1e-2}),
        "prompt-p+hma": prompt_row(
            "prompt-p", tuning="part", recipe={"lr": 1e-2}, memory=True, **SMALL
        ),
        **ablation_rows(tuning="part", recipe={"lr": 1e-2}, **SMALL),
    }
    usual = budgets("DTD", lr=1e-2)
    return Table(
        key="OWN",
        title="Pictures of one's own",
        problems={"DTD": folder_problem(pictures, model=MODEL, weights=weights)},
        rows=rows,
        budgets={**usual, "small": replace(usual["smoke"], what="more")},
        baseline="vit",
        seeds=(0, 1, 2),
    )


def trained(table, row):
    problem, built = table.problems["DTD"], table.rows[row]
    task = problem.task(0)
    learner = built.build(problem.backbone, **built.settings)(task, 0)
    return learner.module, {n for n, v in learner.module.named_parameters() if v.requires_grad}


@pytest.mark.slow
@pytest.mark.parametrize("row", ["vit", "prompt-a", "prompt-p+hma", "hma"])
def test_a_row_is_tuned_and_tested(table, row):
    record = measure(table, Cell("OWN", "smoke", "DTD", row, 0), None)
    assert record.setup["task"]["shape"] == [3, 224, 224]
    assert record.resolved["settings"]["tuning"] == "part"
    contexts = {"batch", "batch-sorted", "alone"} if "hma" in row else {"alone"}
    assert set(record.tests["test"]) == contexts


@pytest.mark.slow
def test_in_part_tuning_cls_token_prompts_head_and_memory_train(table):
    _, plain = trained(table, "prompt-a")
    assert plain == {
        *("backbone.model.cls_token", "backbone.prompts.tokens", "head.weight", "head.bias"),
    }
    model, with_memory = trained(table, "hma")
    assert {name for name in with_memory if name.startswith("backbone")} == {
        "backbone.model.cls_token"
    }
    assert model.momentum_encoder is None


@pytest.mark.slow
def test_part_tuning_runs_the_backbone_once_per_step(table):
    problem, row = table.problems["DTD"], table.rows["hma"]
    task = problem.task(0)
    learner = row.build(problem.backbone, **row.settings)(task, 0)
    calls = []
    learner.model.backbone.register_forward_hook(lambda *seen: calls.append(1))
    learner.module.train()
    batch = task.train.batch(torch.arange(4))
    learner.loss(batch).backward()
    learner.after_step(batch)
    assert len(calls) == 1
    assert learner.model.memory_state().labels.tolist() == batch.y.tolist()


def test_missing_weights_are_one_clear_line(pictures, tmp_path, monkeypatch):
    monkeypatch.setenv("HMA_DATA", str(tmp_path))
    problem = folder_problem(pictures)
    with pytest.raises(
        UserError, match=r"weights of timm's vit_base_patch32_224.augreg_in21k are"
    ) as e:
        problem.backbone(problem.task(0))
    assert str(tmp_path / "weights" / "vit_base_patch32_224.augreg_in21k.safetensors") in str(
        e.value
    )


def test_the_tiny_budget_runs_what_it_says():
    tables = {
        key: load_table(EXPERIMENTS / f"{name}.py")
        for key, name in (("T1", "t1_vit_full"), ("T2", "t2_vit_prompts"), ("T8", "t8_vit_part"))
    }
    found = {
        key: {(cell.task, cell.method) for cell in table.cells("tiny")}
        for key, table in tables.items()
    }
    assert found["T8"] == {
        (task, row) for task in ("PETS37", "FLOWERS102") for row in tables["T8"].published
    }
    assert found["T2"] == {("PETS37", row) for row in tables["T2"].published}
    assert found["T1"] == {("PETS37", row) for row in ("vit", "prompt-a", "param", "hma")}
    for key, table in tables.items():
        for cell in table.cells("tiny"):
            recipe = table.recipe(cell)
            assert (recipe.steps, recipe.batch_size, cell.seed in (0, 1, 2)) == (250, 32, True)
            assert cell.task in table.published[cell.method], key
        for row in table.rows.values():
            assert row.settings.get("queue_size", 128) == 4 * 32
        assert "small" not in {b for b, budget in table.budgets.items() if budget.problems}


@pytest.mark.data
def test_columns_of_the_tiny_budget_are_112_pixels_wide(data_root, monkeypatch):
    monkeypatch.setenv("HMA_DATA", str(data_root))
    table = load_table(EXPERIMENTS / "t8_vit_part.py")
    sizes = {"PETS37": (37, 3312, 368, 3669), "FLOWERS102": (102, 1020, 1020, 1020)}
    for name, (classes, *rows) in sizes.items():
        problem = table.problem(name, "tiny")
        try:
            task = problem.task(0)
            backbone = problem.backbone(task, tuning="part")
        except MissingDataError as error:
            pytest.skip(f"real data is absent: {error}")
        assert [len(task.classes), task.shape] == [classes, (3, 112, 112)]
        assert [len(task.train), len(task.validation), len(task.tests["test"])] == rows
        places = torch.arange(2)
        seen, again = task.train.batch(places, epoch=0).x, task.train.batch(places, epoch=1).x
        assert not torch.equal(seen, again)
        assert torch.equal(*(task.validation.batch(places, epoch=e).x for e in (0, 1)))
        assert -1 <= float(seen.min()) < float(seen.max()) <= 1
        assert backbone(seen).shape == (2, 192)


def test_flowers_that_are_not_there_are_missing_data(tmp_path, monkeypatch):
    monkeypatch.setenv("HMA_DATA", str(tmp_path))
    table = load_table(EXPERIMENTS / "t8_vit_part.py")
    with pytest.raises(MissingDataError, match=r"Flowers102 .* is missing: .*flowers102"):
        table.problem("FLOWERS102", "tiny").task(0)
