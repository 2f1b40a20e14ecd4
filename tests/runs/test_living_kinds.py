"""Every kind of row and label is taught and forgotten the same way."""

import numpy as np
import pandas
import pytest
import torch
from small_sources import QUICK, graphs, images, texts

import hma
from hma.data.task import content_hashes, split_hashes
from hma.errors import UserError
from hma.report.page import render
from hma.runs import MEMORY, Run, RunOptions, train
from hma.runs.explanation import as_page, explain_row
from hma.runs.held_out import held_out_hashes
from hma.runs.living import LivingMemory
from hma.runs.page import report_of
from hma.runs.source import rows_for
from hma.training import SilentProgress


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
        said = model.target.expected(model(x))[:, -1]
    exact = hma.explain(model, x).exact
    torch.testing.assert_close(exact.whole[:, -1], said, rtol=1e-3, atol=1e-3)
    parts = torch.stack([exact.queue(row)[voted, -1].sum() for row in range(len(rows))])
    assert bool((parts > 0.9 * said).all())
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


@pytest.mark.parametrize("made", [images, texts, graphs])
def test_held_out_rows_of_any_kind_are_recognised_in_any_batch(tmp_path, made):
    options, new = made(tmp_path)
    run = train(options, tmp_path / "run", compare=False, progress=SilentProgress())
    kept = held_out_hashes(run)
    source = rows_for(run, options.source, labelled=True)
    whole = run.preparation.split(source)
    assert [*kept] == ["validation", "test"]
    for name, hashes in kept.items():
        places = torch.tensor(run.places[name])
        assert torch.equal(split_hashes(whole)[places], hashes)
        alone = [content_hashes(whole.batch(place[None]).x) for place in places]
        assert torch.equal(torch.cat(alone), hashes)
    strange = split_hashes(run.preparation.split(rows_for(run, new, labelled=False)))
    assert not torch.isin(strange, torch.cat([*kept.values()])).any()
    with pytest.raises(
        UserError, match=r"test rows? of this run|holds all 24 rows"
    ):  # graphs: alike
        LivingMemory.open(run).remember(options.source)


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
    assert [change.number for change in report.parts["rows"].changes] == [1, 2]
    assert "the backbone" in report.parts["rows"].changes[1].remains
    assert {row.where for row in report.parts["rows"].held} == {"training", "new"}
    assert {row.id for row in report.parts["rows"].held} == {row.id for row in memory.rows()}
    assert sum(row.share for row in report.parts["rows"].held) == pytest.approx(1.0)
    assert not any("not of the same weights" in note for note in report.notes)
    page = render(report)
    assert "of the sea" in page
    assert 'id="versions"' in page
