"""Claims of the paper: differences from the JSON files themselves, and the rule."""

import json
from statistics import fmean

import numpy as np
import pytest
from scipy.stats import t
from table_records import keep, made_up_table, record_of, records_of

from hma.metrics.resampling import Interval
from hma.paper.report.claims import Finding, Sight, findings_of, verdict_on
from hma.paper.report.documents import reports_of
from hma.paper.results import Results
from hma.paper.table import Claim

MORE = Claim(says="hma is more", where="here", rows=(("hma", "plain"),))


def scores(folder, task, row, budget="small"):
    found = []
    for seed in range(10):
        file = json.loads((folder / f"T9/{budget}/{task}/{row}/{seed}.json").read_text())
        own = file["setup"]["method"]["contexts"][0]
        found.append(100 * fmean(one[own]["accuracy"] for one in file["tests"].values()))
    return np.array(found)


def findings(table, tmp_path, records):
    return findings_of(reports_of(table, keep(Results(tmp_path), records)))


def test_a_difference_is_paired_and_has_students_interval(tmp_path):
    table = made_up_table(claims=(MORE,))
    (found,) = findings(table, tmp_path, records_of(table))
    assert (found.asked, len(found.contrasts), found.tables) == (2, 2, ("T9",))
    for one in found.contrasts:
        apart = scores(tmp_path, one.task, "hma") - scores(tmp_path, one.task, "plain")
        error = apart.std(ddof=1) / np.sqrt(10)
        ends = apart.mean() + np.array(t.interval(0.95, 9)) * error
        assert one.difference.value == pytest.approx(apart.mean())
        found_ends = [one.difference.low, one.difference.high]
        assert found_ends == pytest.approx(ends, abs=0.2 * error)
        assert one.reduced
    assert found.contrasts[0].published == pytest.approx(2.25)
    assert found.contrasts[1].published is None
    assert found.published == pytest.approx(2.25)
    assert found.pooled.value == pytest.approx(fmean(c.difference.value for c in found.contrasts))


def scored(table, level):
    """Return records whose rows differ by a level in points, with little spread."""
    found = {}
    for cell in table.cells("small"):
        score = 0.6 + 0.001 * (cell.seed % 3) + level.get((cell.task, cell.method), 0) / 100
        contexts = ["batch", "alone"] if cell.method == "hma" else ["alone"]
        tests = {"first": {c: {"accuracy": score + 1e-4 * (cell.seed % 2)} for c in contexts}}
        found[cell] = record_of(table, cell, tests=tests, contexts=contexts)
    return found


@pytest.mark.parametrize(
    ("level", "every", "verdict"),
    [
        ({("left", "hma"): 2, ("right", "hma"): 3}, True, "confirmed"),
        ({("left", "hma"): -2, ("right", "hma"): -3}, False, "not confirmed"),
        ({("left", "hma"): 9, ("right", "hma"): -3}, True, "not confirmed"),
    ],
)
def test_a_claim_about_an_order(tmp_path, level, every, verdict):
    claim = Claim(says="more", where="here", rows=(("hma", "plain"),), every=every)
    table = made_up_table(claims=(claim,))
    (found,) = findings(table, tmp_path, scored(table, level))
    assert found.verdict == verdict
    assert [one.task for one in found.refuted] == [k[0] for k, v in level.items() if v < 0]


def test_the_rule_of_a_claim():
    no_more = Claim(says="", where="", kind="no more")
    no_less = Claim(says="", where="", kind="no less")
    around, above, below = Interval(0, -2, 2), Interval(3, 2, 4), Interval(-3, -4, -2)
    small = Interval(0, -0.5, 0.5)
    told = {
        (claim.kind, whole.value, whole.high): verdict_on(claim, whole, missed=False, refuted=False)
        for claim in (MORE, no_more, no_less)
        for whole in (around, above, below, small)
    }
    assert told == {
        ("more", 0, 2): "open", ("more", 3, 4): "confirmed",
        ("more", -3, -2): "not confirmed", ("more", 0, 0.5): "open",
        ("no more", 0, 2): "open", ("no more", 3, 4): "not confirmed",
        ("no more", -3, -2): "confirmed", ("no more", 0, 0.5): "confirmed",
        ("no less", 0, 2): "open", ("no less", 3, 4): "confirmed",
        ("no less", -3, -2): "not confirmed", ("no less", 0, 0.5): "confirmed",
    }  # fmt: skip
    assert verdict_on(MORE, around, missed=True, refuted=False) == "not confirmed"


def test_tables_that_make_the_same_claim_are_looked_at_together(tmp_path):
    other = Claim(says="hma is more", where="here", rows=(("rma", "plain"),))
    tables = [made_up_table(key=key, claims=(c,)) for key, c in (("T9", MORE), ("T8", other))]
    reports = []
    for table in tables:
        results = keep(Results(tmp_path), records_of(table))
        reports += reports_of(table, results)
    (found,) = findings_of(reports)
    assert found.tables == ("T8", "T9")
    assert [(one.table, one.row) for one in found.contrasts] == [
        ("T8", "rma"), ("T8", "rma"), ("T9", "hma"), ("T9", "hma"),
    ]  # fmt: skip


def test_one_seed_is_no_evidence(tmp_path):
    table = made_up_table(claims=(MORE,))
    first = [cell for cell in table.cells("small") if cell.seed == 0]
    (found,) = findings(table, tmp_path, records_of(table, first))
    assert (found.contrasts, found.verdict) == ((), "open")


def test_pictures_that_do_not_agree_leave_a_claim_open():
    claim = Claim(says="", where="", kind="seen", seen="silhouette")
    sights = [
        Sight(table="F3", task=str(i), says="", verdict=verdict)
        for i, verdict in enumerate(("confirmed", "open", "confirmed"))
    ]
    assert Finding(claim=claim, tables=("F3",), sights=tuple(sights)).verdict == "open"
    assert Finding(claim=claim, tables=("F3",), sights=(sights[0],)).verdict == "confirmed"
    assert Finding(claim=claim, tables=("F3",)).verdict == "open"
