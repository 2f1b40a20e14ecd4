"""Every kind of row and label is taught and forgotten the same way."""

import numpy as np
import pandas
import pytest
import torch
from PIL import Image

from hma.data import PreparationOptions
from hma.errors import UserError
from hma.extras import needed
from hma.report.run import render
from hma.runs import MEMORY, Run, RunOptions, train
from hma.runs.explanation import as_page, explain_row
from hma.runs.folder import rows_for
from hma.runs.living import LivingMemory
from hma.runs.page import report_of
from hma.training import Recipe, SilentProgress

QUICK = Recipe(epochs=1, batch_size=16)


def pictures(folder, colours, count):
    """Write pictures of one colour each, a folder for each colour."""
    draw = np.random.default_rng(count)
    for name, colour in colours.items():
        (folder / name).mkdir(parents=True)
        for place in range(count):
            noise = draw.integers(-20, 20, size=(8, 8, 3))
            pixels = np.clip(np.array(colour) + noise, 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{place}.png")
    return str(folder)


def images(folder):
    old = {"red": (220, 30, 30), "green": (30, 220, 30)}
    options = RunOptions(source=pictures(folder / "old", old, 12), backbone="cnn", recipe=QUICK)
    return options, pictures(folder / "new", {"blue": (30, 30, 220)}, 4)


def texts(folder):
    transformers = needed("transformers", "texts")
    words = ["good", "fine", "bad", "poor", "odd", "film", "plot", "end"]
    (folder / "encoder").mkdir()
    vocabulary = folder / "encoder" / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words]))
    transformers.BertTokenizerFast(str(vocabulary)).save_pretrained(folder / "encoder")
    config = transformers.BertConfig(
        vocab_size=12, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=16,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(folder / "encoder")
    lines = [(f"{a} {b} {c}", label) for label, some in (("up", words[:2]), ("down", words[2:4]))
             for a in some for b in words[5:] for c in words[5:]]  # fmt: skip
    more = [(f"odd odd {word}", "strange") for word in words[5:]]
    for name, rows in (("old.jsonl", lines), ("new.jsonl", more)):
        frame = pandas.DataFrame(rows, columns=["text", "label"])
        frame.to_json(folder / name, orient="records", lines=True)
    options = RunOptions(
        source=str(folder / "old.jsonl"),
        backbone=f"hf:{folder / 'encoder'}",
        frozen_backbone=True,
        preparation=PreparationOptions(max_length=16),
        recipe=QUICK,
    )
    return options, str(folder / "new.jsonl")


def rings(folder, name, kinds):
    """Write graphs: a ring of 4 for kind 0, a star for 1, all joined for 2."""
    shapes = [
        [(0, 1), (1, 2), (2, 3), (3, 0)],
        [(0, 1), (0, 2), (0, 3)],
        [(a, b) for a in range(4) for b in range(a)],
    ]
    inside = folder / name
    inside.mkdir()
    edges = [
        f"{4 * graph + a + 1}, {4 * graph + b + 1}"
        for graph, kind in enumerate(kinds)
        for one, other in shapes[kind]
        for a, b in ((one, other), (other, one))
    ]
    owners = [str(graph + 1) for graph in range(len(kinds)) for _ in range(4)]
    for part, lines in {"A": edges, "graph_indicator": owners, "graph_labels": kinds}.items():
        (inside / f"{name}_{part}.txt").write_text("\n".join(map(str, lines)) + "\n")
    return str(inside)


def graphs(folder):
    options = RunOptions(source=rings(folder, "OLD", [0, 1] * 12), recipe=QUICK)
    return options, rings(folder, "NEW", [2] * 3)


@pytest.mark.parametrize(("made", "name"), [(images, "blue"), (texts, "strange"), (graphs, "2")])
def test_a_class_of_any_kind_of_rows_is_taught_answered_explained_and_forgotten(
    tmp_path, made, name
):
    options, new = made(tmp_path)
    run = train(options, tmp_path / "run", compare=False, progress=SilentProgress())
    memory = LivingMemory.open(run)
    rows = rows_for(run, new, labelled=False)
    split = run.preparation.split(rows)
    x = split.batch(torch.arange(len(split))).x
    with torch.no_grad():
        before = run.learner(MEMORY).model(x)
    version = memory.remember(new, new_classes=True)
    assert (version.added, version.classes) == (len(rows), (name,))
    model = memory.run.learner(MEMORY).model
    with torch.no_grad():
        voted = model.real.queue.labels.eq(model.target.count - 1)
        shares = model.trace(model.backbone(x)).real.over_rows(model.real.queue.size)[:, voted]
        said = model.target.expected(model(x))[:, -1]
    torch.testing.assert_close(said, shares.sum(dim=1), rtol=2e-3, atol=2e-3)
    found = explain_row(memory.run, rows, 0, top=3, context="alone")
    taught = [seen for seen in found.seen if seen.kind == "taught row"]
    assert taught
    assert taught[0].description in {rows.describe(place) for place in range(len(rows))}
    assert (taught[0].picture is not None) == (rows.kind == "image")
    assert "taught row" in as_page(found)
    with pytest.raises(UserError, match=rf"--where is for tables, .* kind '{rows.kind}'"):
        memory.forget(where="a == 1")
    memory.forget(label=name, yes=True)
    forgetful = memory.run.learner(MEMORY).model
    with torch.no_grad():
        after = forgetful.target.expected(forgetful(x))
    torch.testing.assert_close(after[:, :-1], before.softmax(dim=1))
    assert float(after[:, -1].max()) < 1e-6
    memory.restore(0)
    with torch.no_grad():
        assert torch.equal(memory.run.learner(MEMORY).model(x), before)


@pytest.mark.parametrize(
    ("target", "task"), [(("price",), "regression"), (("warm", "large"), None)]
)
def test_numbers_and_yes_no_labels_are_taught_too(tmp_path, target, task):
    draw = np.random.default_rng(0)
    frame = pandas.DataFrame(draw.normal(size=(60, 3)), columns=[*"abc"]).round(4)
    frame["price"] = (100 + 10 * frame.a).round(2)
    frame["warm"] = (frame.a > 0).map({True: "yes", False: "no"})
    frame["large"] = (frame.b > 0).map({True: "yes", False: "no"})
    frame = frame[[*"abc", *target]]
    frame[:50].to_csv(tmp_path / "rows.csv", index=False)
    frame[50:].to_csv(tmp_path / "more.csv", index=False)
    options = RunOptions(
        source=str(tmp_path / "rows.csv"), target=target, task=task, backbone="mlp", recipe=QUICK
    )
    run = train(options, tmp_path / "run", compare=False, progress=SilentProgress())
    memory = LivingMemory.open(run)
    held = len(memory.rows())
    version = memory.remember(str(tmp_path / "more.csv"))
    assert (version.added, version.rows) == (10, held + 10)
    labels = memory.store().target.given(memory.store().rows().labels[-10:])
    wanted = memory.run.preparation.split(
        rows_for(memory.run, str(tmp_path / "more.csv"), labelled=True)
    ).labels
    torch.testing.assert_close(labels, wanted.to(labels))
    assert [score.rows for score in version.scores] == ["validation rows", "taught rows"]
    assert all(score.after is not None for score in version.scores)
    with pytest.raises(UserError, match="--new-classes is for rows with one class each"):
        memory.remember(str(tmp_path / "more.csv"), new_classes=True)
    with pytest.raises(UserError, match="--class is for classes"):
        memory.forget(label="warm")
    version = memory.forget(where="a > 0", scored=False)
    assert version.forgotten > 3
    assert render(report_of(Run.open(tmp_path / "run"))).count("forgot") >= 1


def test_the_page_says_which_version_answers_and_what_it_holds(tmp_path):
    options, new = images(tmp_path)
    train(options, tmp_path / "run", compare=False, progress=SilentProgress())
    memory = LivingMemory.open(tmp_path / "run")
    page = render(report_of(memory.run))
    assert 'id="version"' not in page
    assert 'id="versions"' not in page
    memory.remember(new, new_classes=True, note="of the sea")
    memory.forget(ids=[0], scored=False)
    report = report_of(memory.run)
    assert report.classes == ("green", "red", "blue")
    assert report.version.startswith("Version 2 of the memory answers, with ")
    assert [change.number for change in report.changes] == [1, 2]
    assert "the backbone" in report.changes[1].remains
    assert {row.where for row in report.held} == {"training", "new"}
    assert {row.id for row in report.held} == {row.id for row in memory.rows()}
    assert sum(row.share for row in report.held) == pytest.approx(1.0)
    assert not any("not of the same weights" in note for note in report.notes)
    page = render(report)
    assert "of the sea" in page
    assert 'id="versions"' in page
