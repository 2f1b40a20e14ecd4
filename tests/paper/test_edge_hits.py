"""How often the edges that count are the true ones, against a loop over graphs."""

import pytest
import torch

from hma.backbones import GIN
from hma.data.sets.spurious_motif import spurious_motif
from hma.data.task import limited
from hma.methods import erm, with_memory
from hma.paper.edge_hits import edge_hits, hit_shares
from hma.paper.rivals import ciga, edge_scores

pytest.importorskip("torch_geometric", reason="needs the graph extra", exc_type=ImportError)
from training_cases import MEMORY


def encoder(task):
    return GIN(task.shape[0], width=16, num_layers=2)


def test_hits_are_true_edges_among_as_many_highest_ones():
    generator = torch.Generator().manual_seed(0)
    graph_of = torch.randint(7, (300,), generator=generator)
    scores = torch.randn(300, generator=generator).double()
    true = torch.rand(300, generator=generator) < 0.2
    true[graph_of == 3] = False  # nothing to find
    hits, chance = [], []
    for graph in (0, 1, 2, 4, 5, 6):
        own = [place for place in range(300) if graph_of[place] == graph]
        wanted = sum(bool(true[place]) for place in own)
        best = sorted(own, key=lambda place: -scores[place].item())[:wanted]
        hits.append(sum(bool(true[place]) for place in best) / wanted)
        chance.append(wanted / len(own))
    found = hit_shares(scores, graph_of, true, 7)
    assert found[0].tolist() == pytest.approx(hits)
    assert found[1].tolist() == pytest.approx(chance)


@pytest.mark.parametrize("method", [erm(encoder), ciga(encoder), with_memory(encoder, MEMORY)])
def test_a_record_says_hits_and_chance_of_every_test(method):
    task = limited(spurious_motif(0, train=9, validation=6, test=12).task, 10, seed=1)
    learner = method(task, 0)
    learner.use(learner.contexts[0])
    found = edge_hits(learner, task, batch_size=4)["edge hits"]
    assert sorted(found) == ["larger", "unbiased"]
    split = task.tests["larger"]
    learner.use("alone")
    shares = []
    for place in range(10):
        batch = split.batch(torch.tensor([place]))
        marks = batch.x.motif
        best = edge_scores(learner, batch).argsort(descending=True)[: int(marks.sum())]
        shares.append((float(marks[best].double().mean()), float(marks.double().mean())))
    hits, chance = (sum(values) / 10 for values in zip(*shares, strict=True))
    assert found["larger"]["chance"] == pytest.approx(chance, abs=1e-6)
    assert found["larger"]["hits"] == pytest.approx(hits, abs=0.05)  # but for equal scores
    learner.use(learner.contexts[0])


def test_equal_scores_hit_by_chance():
    task = spurious_motif(0, train=9, validation=6, test=300).task
    learner = erm(encoder)(task, 0)
    torch.nn.init.zeros_(learner.module.head.weight)  # no edge has any gradient
    for found in edge_hits(learner, task, batch_size=64)["edge hits"].values():
        assert found["hits"] == pytest.approx(found["chance"], abs=0.04)
