"""``hma train --seeds`` and what the other commands make of its folder."""

import re
import shutil

import numpy as np
import pytest

QUICK = ["--target", "kind", "--epochs", "2", "--batch-size", "16", "--accelerator", "cpu"]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    draw = np.random.default_rng(0)
    kinds = draw.integers(3, size=90)
    lines = ["width,length,kind"]
    for kind in kinds:
        width, length = draw.normal(size=2) + 2 * kind
        lines.append(f"{width:.3f},{length:.3f},{'abc'[kind]}")
    path = tmp_path_factory.mktemp("rows") / "rows.csv"
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(scope="module")
def trained(rows, run_hma, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "several"
    return run_hma("train", rows, *QUICK, "--seeds", 2, "--seed", 3, "-o", folder), folder


def test_one_line_per_seed_then_the_comparison_and_the_verdict(trained):
    ended, folder = trained
    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    done = [line for line in lines if "is done" in line]
    assert [line[:16] for line in done] == ["seed 3 is done: ", "seed 4 is done: "]
    for name in ("deployed", "memory", "plain backbone"):
        assert all(re.search(rf"(accuracy|,) {name} [\d.]+%", line) for line in done), name
    assert any(line.strip().startswith("Accuracy over 2 seeds") for line in lines)
    assert any(line.strip().startswith("Log loss over 2 seeds") for line in lines)
    (verdict,) = (line for line in lines if line.startswith("verdict: "))
    assert verdict.endswith("(2 seeds)")
    assert lines[-2:] == [f"report: {folder / 'report.html'}", f"run folder: {folder}"]
    described = [line for line in lines if "3 classes" in line]
    assert len(described) == 1, "what is the same for every seed is said once"


def test_the_page_links_to_pages_that_are_there(trained):
    _, folder = trained
    links = re.findall(r'<a href="([^"#]*)">', (folder / "report.html").read_text())
    assert links == ["seed-3/report.html", "seed-4/report.html"]
    assert all((folder / link).is_file() for link in links)


def test_the_same_command_again_shows_the_same(trained, rows, run_hma):
    first, folder = trained
    again = run_hma("train", rows, *QUICK, "--seeds", 2, "--seed", 3, "-o", folder)
    assert again.code == 0, again.err
    kept = [line for line in first.out.splitlines() if not re.match(r"seed \d: ", line)]
    assert again.out.splitlines() == kept


@pytest.mark.parametrize(
    "command",
    [
        lambda folder, rows: ["predict", folder, rows, "-o", f"{rows}.csv", "--overwrite"],
        lambda folder, rows: ["explain", folder, rows, "--index", 0],
        lambda folder, rows: ["evaluate", folder, rows],
    ],
    ids=["predict", "explain", "evaluate"],
)
def test_commands_ask_the_first_seed_and_say_so(trained, rows, run_hma, command):
    _, folder = trained
    ended = run_hma(*command(folder, rows))
    assert ended.code == 0, ended.err
    assert f"note: {folder} holds 2 seeds; this is seed 3, --seed asks another" in ended.err
    chosen = run_hma(*command(folder, rows), "--seed", 3)
    assert "note:" not in chosen.err
    assert chosen.out == ended.out
    assert run_hma(*command(folder / "seed-3", rows)).out == ended.out


def test_seeds_that_are_not_there_are_refused(trained, rows, refuses):
    _, folder = trained
    said = refuses("explain", folder, rows, "--index", 0, "--seed", 9)
    assert said == f"hma: --seed must be one of 3, 4 for {folder}, got 9"
    said = refuses("explain", folder / "seed-3", rows, "--index", 0, "--seed", 4)
    assert said.endswith("a run with one seed, got 4")
    assert refuses("train", rows, *QUICK, "--seeds", 0) == "hma: --seeds must be at least 1, got 0"


def test_the_report_is_the_comparison_or_the_page_of_a_seed(trained, rows, run_hma, tmp_path):
    _, folder = trained
    ended = run_hma("report", folder, "-o", tmp_path / "page.html")
    assert ended.code == 0, ended.err
    page = (tmp_path / "page.html").read_text()
    assert "hma report over seeds" in page
    (first, _) = re.findall(r'<a href="([^"#]*)">', page)
    assert (tmp_path / first).is_file(), "links are from where the page is"
    one = run_hma("report", folder, "--seed", 4, "-o", tmp_path / "one.html")
    assert one.code == 0, one.err
    assert "<li>seed <b>4</b></li>" in (tmp_path / "one.html").read_text()


def test_the_two_kinds_of_folders_are_told_apart(trained, rows, refuses):
    _, folder = trained
    said = refuses("train", rows, *QUICK, "-o", folder)
    assert "holds several runs; give one of them, such as" in said
    said = refuses("train", rows, *QUICK, "--seeds", 2, "-o", folder / "seed-3")
    assert said.endswith("holds a single run; give another folder")


def test_a_damaged_list_of_options_is_one_line(trained, rows, refuses, tmp_path):
    copy = shutil.copytree(trained[1], tmp_path / "copy")
    (copy / "run.json").write_text((copy / "run.json").read_text().replace("rows.csv", "r0ws.csv"))
    assert "does not match its own hash" in refuses("explain", copy, rows, "--index", 0)
