"""The experiment files: complete, with the paper's numbers, and what they build."""

import ast
import json
from pathlib import Path

import pytest
import torch

from hma.backbones import mlp
from hma.data import InMemory, Task
from hma.paper.cells import measure
from hma.paper.experiment_files import load_table
from hma.paper.row_answers import kept_answers
from hma.paper.table import Cell

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "experiments").glob("[!_]*.py"))
PAPER = ROOT.parent / "shared" / "paper" / "published.json"
KEYS = {
    "T1": "T1_vit_full",
    "T2": "T2_vit_part_combine",
    "T3": "T3_ogb",
    "T4": "T4_graph_id",
    "T5": "T5_ood_degree",
    "T6": "T6_ood_size",
    "T7": "T7_cifar10",
    "T8": "T8_vit_part",
    "F2": "F2_cmnist",
    "F3": "F3_tsne_cifar10",
    "F4": "F4_tsne_reddm5",
    "F5": "F5_m1_m2_sweep",
    "F6": "F6_attention_maps",
}
NAMES = {
    "T4": {
        "D-edge": "DropEdge",
        "D-node": "DropNode",
        "S-graph": "Subgraph",
        "M-mixup": "Manifold-Mixup",
        "G-mixup": "G-Mixup",
    },
    "T5": {"V-REX": "V-REx"},
    "T6": {"V-REX": "V-REx"},
    "T7": {"none": "ERM", "RMA+ABD": "ABD+RMA", "RMA+ABD+SYN": "HMA"},
    "T8": {"r+a+s": "hma"},
}


def named(file):
    return file.stem


def of_the_paper(file):
    return "paper" in load_table(file).budgets


@pytest.mark.parametrize("file", FILES, ids=named)
def test_a_file_opens_with_its_command_its_cost_and_what_was_published(file):
    table, opening = load_table(file), ast.get_docstring(ast.parse(file.read_text()))
    for budget in table.budgets:
        assert f"hma run {table.key} --budget {budget}" in opening
    assert "Published" in opening
    assert all(row.what for row in table.rows.values())


@pytest.mark.skipif(not PAPER.exists(), reason=f"the paper's numbers are not at {PAPER}")
@pytest.mark.parametrize("file", [*filter(of_the_paper, FILES)], ids=named)
def test_published_columns_are_those_of_the_paper(file):
    table, paper = load_table(file), json.loads(PAPER.read_text())
    printed = paper[KEYS[table.key]].get("results", "a picture")
    if isinstance(printed, str):
        assert not table.published, f"{table.key} is printed without numbers"
        return
    if table.key == "T7":
        printed = {row: {"CIFAR10": value} for row, value in printed.items()}
    renamed = {NAMES.get(table.key, {}).get(row, row): cells for row, cells in printed.items()}
    expected = {
        row: {task: tuple(value) for task, value in cells.items()} for row, cells in renamed.items()
    }
    assert {row: dict(cells) for row, cells in table.published.items()} == expected


def test_every_table_of_the_paper_has_the_row_of_parameters_without_memory():
    for file in filter(of_the_paper, FILES):
        names = [name.lower() for name in load_table(file).rows]
        assert any(name.split("+")[-1] == "param" for name in names)


def test_protocols_are_those_of_the_paper():
    tables = {load_table(file).key: load_table(file) for file in FILES}
    vit = tables["T1"].recipe(Cell("T1", "paper", "PETS37", "hma", 0))
    assert (vit.steps, vit.batch_size, vit.lr, vit.warmup_steps) == (500, 128, 3e-3, 50)
    assert (vit.drop_last, vit.evaluate_every_steps, vit.selection) == (True, 30, "best")
    part = tables["T8"].recipe(Cell("T8", "paper", "CIFAR100", "hma", 0))
    assert (part.steps, part.lr, part.sgd_momentum, part.weight_decay) == (10_000, 1e-2, 0.9, 0)
    cifar = tables["T7"].recipe(Cell("T7", "paper", "CIFAR10", "HMA", 0))
    assert (cifar.epochs, cifar.lr, cifar.weight_decay, cifar.schedule) == (
        200,
        0.1,
        5e-4,
        "cosine",
    )


def test_graphs_of_another_size_follow_the_papers_protocol():
    table = load_table(ROOT / "experiments" / "t6_size_shift.py")
    recipe = table.recipe(Cell("T6", "paper", "NCI1", "HMA", 1))
    assert (recipe.epochs, recipe.batch_size, recipe.lr, recipe.clip_norm) == (400, 32, 1e-3, 1.0)
    assert (recipe.patience, recipe.patience_from, recipe.selection) == (5, 20, "best")
    assert (table.metric, table.seeds) == ("matthews", tuple(range(1, 11)))
    assert table.rows["HMA"].settings == {
        "ablation": "hma", "anchors": 32, "label_dim": 16, "queue_size": 128,
        "slots_per_class": 32, "num_heads": 4,
    }  # fmt: skip


def test_graph_tables_have_the_papers_sizes_and_seeds():
    tables = {load_table(file).key: load_table(file) for file in FILES}
    social = tables["T4"].recipe(Cell("T4", "paper", "IMDB-B", "HMA", 1314))
    assert (social.epochs, social.lr, social.weight_decay, social.batch_size) == (
        800, 0.01, 5e-4, 128,
    )  # fmt: skip
    assert (social.schedule, social.decay_every, social.decay_factor) == ("step", 100, 0.5)
    assert tables["T4"].seeds[:3] == (1314, 11314, 21314)
    assert len(tables["T4"].seeds) == 8
    molecules = tables["T3"].recipe(Cell("T3", "paper", "bace", "GIN+HMA", 0))
    assert (molecules.epochs, molecules.lr, molecules.batch_size) == (100, 1e-3, 32)
    assert tables["T3"].metric == "auroc"
    sentences = tables["T5"].rows["HMA"].settings
    assert sentences["queue_size"] == {"SST5": 512, "TWITTER": 192}
    assert sentences["slots_per_class"] == {"SST5": 16, "TWITTER": 48}
    assert (sentences["label_dim"], sentences["num_heads"]) == (32, 4)
    assert tables["T5"].seeds == (1, 2, 3, 4, 5)


def test_settings_by_task_are_those_of_the_task():
    table = load_table(ROOT / "experiments" / "t5_degree_shift.py")
    row = table.rows["HMA"]
    for name, size, slots in (("SST5", 512, 16), ("TWITTER", 192, 48)):
        rows = InMemory(torch.zeros(4, 2), torch.tensor([0, 1, 0, 1]))
        task = Task(name, "table", ("a", "b"), (2,), rows, rows, {"test": rows})
        config = row.build(lambda task: mlp(2, hidden=(8,)), **row.settings)(task, 0).model.config
        assert (config.queue_size, config.slots_per_class) == (size, slots)


def test_only_rows_that_are_named_so_select_on_test():
    for file in FILES:
        for name, row in load_table(file).rows.items():
            assert (row.task is not None) == name.endswith("-oracle")


@pytest.mark.data
def test_a_cell_on_graphs_is_scored_in_every_context_and_keeps_its_answers(data_root, monkeypatch):
    monkeypatch.setenv("HMA_DATA", str(data_root))
    table = load_table(ROOT / "experiments" / "t6_size_shift.py")
    record = measure(table, Cell("T6", "smoke", "PROTEINS", "HMA", 1), folder=None)
    contexts = ["batch", "batch-sorted", "alone", "anchors"]
    assert list(record.tests["test"]) == contexts
    answers = kept_answers(record)["test"]
    assert list(answers.logits) == contexts
    assert len(answers.labels) == 64
    oracle = measure(table, Cell("T6", "smoke", "PROTEINS", "ERM-oracle", 1), folder=None)
    assert oracle.setup["task"]["facts"]["validation"] == "the test rows"
    scores = oracle.epochs[oracle.selected_epoch]["validation"]["alone"]
    assert scores["matthews"] == oracle.tests["test"]["alone"]["matthews"]


@pytest.mark.data
def test_colored_mnist_has_five_settings_and_two_backbones(data_root, monkeypatch):
    monkeypatch.setenv("HMA_DATA", str(data_root))
    table = load_table(ROOT / "experiments" / "f2_colored_mnist.py")
    assert len(table.problems) == 20
    problem = table.problems["cnn-14-0.2-0.1"]
    task = problem.task(0)
    assert problem.backbone(task)(task.train.batch(torch.arange(2)).x).shape == (2, 128)
    seen = task.train.environment.bincount().tolist()
    assert seen == [25_000, 25_000]


def shapes_of_the_cost_table():
    table = load_table(ROOT / "experiments" / "cost.py")
    return table, table.rows["in-turn"].work.__globals__["SHAPES"]


def test_every_shape_of_the_cost_table_begins_with_the_same_four_rows():
    table, shapes = shapes_of_the_cost_table()
    assert list(table.problems) == list(shapes)
    for shape in shapes.values():
        sides = shape.sides(0, 8)
        assert list(sides)[:4] == ["plain", "PARAM", "HMA", "VotingMemory"]
        assert len(sides) > 4
        assert all(side.what for side in sides.values())
        assert {side.recipe.batch_size for side in sides.values()} == {8}
    whole = shapes["ViT-DTD-part"].sides(0, 256)["HMA"].recipe
    assert (whole.batch_size, whole.optimizer, whole.eval_batch_size) == (128, "sgd", 128)
    for task, said in table.published_costs.items():
        assert said.keys() <= shapes[task].sides(0, 8).keys()


def test_part_tuning_of_the_cost_table_trains_what_the_paper_counts():
    _, shapes = shapes_of_the_cost_table()
    sides = shapes["ViT-DTD-part"].sides(0, 8)
    rows = InMemory(torch.zeros(1, 3, 224, 224), torch.zeros(1, dtype=torch.long))
    names = tuple(map(str, range(47)))
    task = Task("DTD", "image", names, (3, 224, 224), rows, rows, {"test": rows})
    trained = {}
    for name in ("plain", "HMA"):
        weights = list(sides[name].method(task, 0).module.parameters())
        trained[name] = sum(one.numel() for one in weights if one.requires_grad)
    assert trained["plain"] == 768 + 47 * 769  # the CLS token and the head
    # the paper's 32,381,250 less a head for 21,843 classes that nobody uses
    assert trained["HMA"] == 32_381_250 - 21_843 * 769
    assert sum(one.numel() for one in weights) < 119e6


@pytest.mark.data
@pytest.mark.slow
def test_a_cell_of_unseen_data_is_a_whole_run_of_hma_train(data_root, monkeypatch):
    monkeypatch.setenv("HMA_DATA", str(data_root))
    table = load_table(ROOT / "experiments" / "unseen.py")
    record = measure(table, Cell("unseen", "smoke", "Zoo", "deployed", 0), folder=None)
    candidates = record.measures["candidates"]
    assert {"plain", "memory", "logistic", "neighbours", "boosting"} <= candidates.keys()
    assert sum(one["share"] for one in candidates.values()) == pytest.approx(1)
    assert record.measures["test_rows"] == 20
    options = record.resolved["options"]
    assert options["source"] == "$HMA_DATA/tables/Zoo.csv"
    assert str(data_root) not in json.dumps(record.to_json())


@pytest.mark.data
def test_sentences_are_words_joined_by_blanks(data_root, monkeypatch, tmp_path):
    monkeypatch.setenv("HMA_DATA", str(data_root))
    table = load_table(ROOT / "experiments" / "unseen.py")
    sources = table.rows["deployed"].work.__globals__["SOURCES"]
    given = sources["Twitter"](tmp_path)
    first = json.loads((data_root / "text/twitter/train.jsonl").read_text().splitlines()[0])
    written = json.loads(Path(given["source"]).read_text().splitlines()[0])
    assert written == {"text": " ".join(first["tokens"]), "label": first["label"]}
    assert "validation" not in given
    assert Path(given["test"]).name == "test.jsonl"
    assert given["frozen_backbone"]


def test_few_labels_draws_as_many_of_a_class_to_validate_as_to_train():
    table = load_table(ROOT / "experiments" / "m2_few_labels.py")
    tasks = [table.problems["digits-5"].task(seed) for seed in (0, 1)]
    for task in tasks:
        assert task.train.labels.bincount().tolist() == [5] * 10
        assert task.validation.labels.bincount().tolist() == [5] * 10
    assert not torch.equal(tasks[0].train.x, tasks[1].train.x)
    assert torch.equal(tasks[0].train.x, table.problems["digits-5"].task(0).train.x)


def test_a_memory_that_is_audited_is_left_as_it_was():
    table = load_table(ROOT / "experiments" / "m2_few_labels.py")
    row, problem = table.rows["VotingMemory"], table.problems["digits-5"]
    task = problem.task(0)
    learner = row.build(problem.backbone, **row.settings)(task, 0)
    rows = task.train.batch(torch.arange(50))
    learner.module.learn_memory([(rows.x, rows.y, rows.ids)])
    before = {name: value.clone() for name, value in learner.module.state_dict().items()}
    audit = row.measure(learner, task)["audit"]["test"]
    after = learner.module.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert audit["stored"] == 50
    assert audit["changes"]["labels permuted"]["accuracy"]["score"] < 0.5
    assert json.loads(json.dumps(audit)) == audit
    assert table.rows["ERM"].measure is None
