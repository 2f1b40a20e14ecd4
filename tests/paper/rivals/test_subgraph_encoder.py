"""ASAP, CIGA and DIR against their formulas, written out with loops in float64."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from hma.backbones import GCN, GIN
from hma.data.sets.spurious_motif import spurious_motif
from hma.extras import needed
from hma.methods import erm
from hma.paper.rivals import asap, ciga, dir_, edge_scores
from hma.paper.rivals.invariant_subgraphs import (
    class_contrast,
    hinged_risk,
    intervened_risks,
    variance,
)
from hma.paper.rivals.subgraph_encoder import SubgraphEncoder, cut_out, highest
from hma.targets import Classes, YesNo

pytest.importorskip("torch_geometric", reason="needs the graph extra", exc_type=ImportError)
pyg = needed("torch_geometric.data", "the tests")
Batch, Data = pyg.Batch, pyg.Data


def encoder(task):
    return GIN(task.shape[0], width=8, num_layers=2)


@pytest.fixture(scope="module")
def task():
    return spurious_motif(0, 0.9, train=24, validation=6, test=6).task


def odd_graphs():
    """Graphs with everything that is rare: no edges, one node, an isolated node, one edge."""
    generator = torch.Generator().manual_seed(1)
    edges = [
        [(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2), (0, 3)],
        [],
        [(0, 1), (1, 0)],  # and a node beside them
        [],
        [(1, 0)],
    ]
    nodes = [4, 3, 3, 1, 2]
    return [
        Data(
            x=torch.rand(count, 4, generator=generator),
            edge_index=torch.tensor(pairs, dtype=torch.long).view(-1, 2).T.contiguous(),
        )
        for count, pairs in zip(nodes, edges, strict=True)
    ]


# --------------------------------------------------------------------------- which edges are kept


@pytest.mark.parametrize("share", [0.01, 0.07, 0.25, 1 / 3, 0.5, 0.7, 1.0])
def test_the_highest_share_of_each_graph_is_what_sorting_each_graph_gives(share):
    generator = torch.Generator().manual_seed(7)
    graph_of = torch.randint(9, (400,), generator=generator)  # in no order
    graph_of[graph_of == 4] = 5  # one graph has no edges
    scores = torch.randn(400, generator=generator).double()
    expected = torch.zeros(400, dtype=torch.bool)
    for graph in range(9):
        own = [place for place in range(400) if graph_of[place] == graph]
        best = sorted(own, key=lambda place: -scores[place].item())
        whole = round(share * len(own))
        near = math.isclose(share * len(own), whole, abs_tol=1e-6)
        expected[best[: whole if near else math.ceil(share * len(own))]] = True
    assert torch.equal(highest(scores, graph_of, 9, share), expected)


def test_the_first_of_equal_scores_is_kept():
    marks = highest(torch.zeros(6), torch.tensor([1, 0, 1, 0, 1, 0]), 2, 0.34)
    assert marks.tolist() == [True, True, True, True, False, False]
    assert highest(torch.empty(0), torch.empty(0, dtype=torch.long), 2, 0.5).shape == (0,)


def test_both_parts_are_the_graphs_that_cutting_each_graph_gives():
    graphs = odd_graphs()
    batch = Batch.from_data_list(graphs)
    weight = torch.rand(batch.edge_index.shape[1])
    edges = torch.rand(batch.edge_index.shape[1]) < 0.5
    first = 0
    parts = {
        True: cut_out(batch, batch.x, edges, weight, edgeless=True),
        False: cut_out(batch, batch.x, ~edges, weight, edgeless=False),
    }
    for place, graph in enumerate(graphs):
        count = graph.edge_index.shape[1]
        for keep, part in parts.items():
            chosen = [e for e in range(count) if bool(edges[first + e]) is keep]
            touched = sorted({int(n) for e in chosen for n in graph.edge_index[:, e]})
            if keep and not count:
                touched = list(range(len(graph.x)))
            inside = part.batch == place
            assert torch.equal(part.x[inside], graph.x[touched])
            own = inside[part.edge_index[0]]
            start = int(part.ptr[place])
            expected = [[touched.index(int(n)) for n in graph.edge_index[:, e]] for e in chosen]
            assert (part.edge_index[:, own] - start).T.tolist() == expected
            assert torch.equal(part.edge_weight[own], weight[[first + e for e in chosen]])
        first += count
    assert all(part.num_graphs == len(graphs) for part in parts.values())


# ------------------------------------------------------------------------------ what is predicted


@pytest.mark.parametrize("reads", ["hidden", "raw"])
@pytest.mark.parametrize("kind", [GIN, GCN])
def test_a_subgraph_encoder_reads_each_graph_cut_by_hand(kind, reads):
    torch.manual_seed(3)
    chooser = kind(4, width=8, num_layers=2)
    made = SubgraphEncoder(chooser, kind(8 if reads == "hidden" else 4, width=6), 0.5, reads)
    made = made.double().eval()
    graphs = [graph.apply(lambda value: value.double() if value.is_floating_point() else value)
              for graph in odd_graphs()]  # fmt: skip
    found = made(Batch.from_data_list(graphs))
    for place, graph in enumerate(graphs):
        hidden = chooser.nodes(graph)
        pairs = graph.edge_index.T.tolist()
        scores = [made.score(torch.cat([hidden[u], hidden[v]]))[0] for u, v in pairs]
        best = sorted(range(len(pairs)), key=lambda e: -scores[e].item())
        kept = sorted(best[: math.ceil(len(pairs) / 2)])
        touched = sorted({node for e in kept for node in pairs[e]}) or list(range(len(hidden)))
        nodes = hidden if reads == "hidden" else graph.x
        part = Data(
            x=nodes[touched],
            edge_index=torch.tensor(
                [[touched.index(node) for node in pairs[e]] for e in kept], dtype=torch.long
            ).view(-1, 2).T,
            edge_weight=torch.tensor(
                [scores[e].sigmoid().item() for e in kept], dtype=torch.double
            ),
        )  # fmt: skip
        torch.testing.assert_close(found[place], made.encoder(part)[0])


def test_what_is_kept_counts_by_its_score_and_the_rest_by_its_opposite(task):
    batch = task.train.batch(torch.arange(5)).x
    cut = ciga(encoder, share=0.4)(task, 0).module.subgraphs.cut(batch)
    scores = cut.scores.tolist()
    for part, high, sign in ((cut.kept, True, 1), (cut.rest, False, -1)):
        chosen = [
            score for score, own in zip(scores, cut.high.tolist(), strict=True) if own is high
        ]
        by_hand = [1 / (1 + math.exp(-sign * score)) for score in chosen]
        assert part.edge_weight.tolist() == pytest.approx(by_hand)


def test_scores_learn_through_the_weights_of_the_edges_alone(task):
    method = ciga(encoder, share=0.3, contrast=0.0, reads="raw")
    learner = method(task, 0)
    subgraphs = learner.module.subgraphs
    loss = learner.loss(task.train.batch(torch.arange(24)))
    learned = torch.autograd.grad(loss, list(subgraphs.score.parameters()))
    assert all(bool((gradient != 0).any()) for gradient in learned[:3])


# ---------------------------------------------------------------------------------------- CIGA


def contrast_by_hand(features, y, weight=None):
    total, counted = 0.0, 0.0
    rows = [row / row.norm() for row in features.double()]
    for i, row in enumerate(rows):
        alike = [j for j in range(len(rows)) if j != i and y[j] == y[i]]
        if not alike:
            continue
        everyone = sum(math.exp(row @ rows[j]) for j in range(len(rows)) if j != i)
        loss = -sum(math.log(math.exp(row @ rows[j]) / everyone) for j in alike) / len(alike)
        counts = 1.0 if weight is None else weight[i].item()
        total, counted = total + counts * loss, counted + counts
    return total / counted if counted else 0.0


@pytest.mark.parametrize(
    "labels", [[0, 1, 0, 2, 1, 0], [0, 1, 2, 3, 4, 5], [1] * 6, [0, 0, 0, 1, 2, 3]]
)
def test_contrast_is_its_formula(labels):  # fmt: skip
    features, y = torch.randn(6, 5).double(), torch.tensor(labels)
    found = class_contrast(features, y, Classes(6))
    assert found.item() == pytest.approx(contrast_by_hand(features, y), rel=1e-9)
    weight = torch.rand(6).double()
    found = class_contrast(features, y, Classes(6), weight)
    assert found.item() == pytest.approx(contrast_by_hand(features, y, weight), rel=1e-9)


def test_one_logit_has_two_classes_to_contrast():
    features, y = torch.randn(5, 3).double(), torch.tensor([0, 1, 1, 0, 1])
    expected = contrast_by_hand(features, y)
    assert class_contrast(features, y, Classes(1)).item() == pytest.approx(expected)
    named = y.double()[:, None]
    assert class_contrast(features, named, YesNo(1)).item() == pytest.approx(expected)


def test_the_rest_counts_where_the_kept_part_does_better():
    rest, kept = torch.rand(50).double(), torch.rand(50).double()
    gated = [float(r) for r, k in zip(rest, kept, strict=True) if r > k]
    assert hinged_risk(rest, kept).item() == pytest.approx(sum(gated) / len(gated))
    assert hinged_risk(kept, kept).item() == 0.0  # nowhere better
    weight = torch.rand(50).double()
    pairs = [(float(w), float(r)) for w, r, k in zip(weight, rest, kept, strict=True) if r > k]
    mean = sum(w * r for w, r in pairs) / sum(w for w, _ in pairs)
    assert hinged_risk(rest, kept, weight).item() == pytest.approx(mean)


@pytest.mark.parametrize("spurious", [0.0, 3.0])
def test_the_loss_of_ciga_is_risk_and_contrast_and_the_hinge(task, spurious):
    learner = ciga(encoder, share=0.4, contrast=2.0, spurious=spurious)(task, 0)
    learner.module.double()
    batch = task.train.batch(torch.arange(12))
    batch.x.x = batch.x.x.double()
    found = learner.loss(batch)
    module = learner.module
    cut = module.subgraphs.cut(batch.x)
    features = module.subgraphs.encoder(cut.kept)
    losses = cross_entropy(module.inner.head(features), batch.y, reduction="none")
    expected = losses.mean() + 2 * contrast_by_hand(features.detach(), batch.y)
    if spurious:
        rest = module.shortcut(module.subgraphs.encoder(cut.rest))
        each = cross_entropy(rest, batch.y, reduction="none")
        gate = [i for i in range(12) if each[i] > losses[i]]
        expected = expected + spurious * sum(each[i] for i in gate) / max(len(gate), 1)
    torch.testing.assert_close(found, expected)


def parted(learner):
    """Return what a batch of 12 teaches each weight of the module inside, and its statistics."""
    inner = learner.module.inner
    found = {name: one.grad for name, one in inner.named_parameters()}
    running = {name: one for name, one in inner.named_buffers() if "running" in name}
    return found, running


@pytest.mark.parametrize("drift", [False, True])
def test_the_rest_of_cigav2_teaches_nothing_but_its_own_head(task, drift):
    learner = ciga(encoder, share=0.4, contrast=1.0, spurious=5.0, drift=drift)(task, 0)
    plain = ciga(encoder, share=0.4, contrast=1.0)(task, 0)
    plain.module.inner.load_state_dict(learner.module.inner.state_dict())
    for one in (learner, plain):
        one.loss(task.train.batch(torch.arange(12))).backward()
    (ours, statistics), (theirs, before) = parted(learner), parted(plain)
    for name, gradient in theirs.items():
        torch.testing.assert_close(ours[name], gradient, rtol=0, atol=0)
    assert all(bool((one.grad != 0).any()) for one in learner.module.shortcut.parameters())
    moved = {name for name, one in statistics.items() if not torch.equal(one, before[name])}
    second = {name for name in statistics if "backbone.encoder" in name}
    assert moved == (second if drift else set())


@pytest.mark.parametrize("head", ["hidden", "linear"])
def test_the_head_of_ciga_has_a_hidden_layer_of_twice_the_width(task, head):
    module = ciga(encoder, head=head, spurious=1.0)(task, 0).module
    shapes = [tuple(one.weight.shape) for one in module.inner.head.modules()
              if isinstance(one, torch.nn.Linear)]  # fmt: skip
    assert shapes == ([(16, 8), (3, 16)] if head == "hidden" else [(3, 8)])
    assert [tuple(one.weight.shape) for one in module.shortcut[::2]] == [(16, 8), (3, 16)]


@pytest.mark.parametrize("reads", ["hidden", "raw"])
def test_what_the_chooser_says_of_kept_parts_is_summed_graph_by_graph(task, reads):
    learner = ciga(
        encoder, share=0.4, contrast=2.0, reads=reads, contrasts="chosen", head="linear"
    )(task, 0)
    module = learner.module.double()
    batch = task.train.batch(torch.arange(12))
    batch.x.x = batch.x.x.double()
    found = learner.loss(batch)
    subgraphs = module.subgraphs
    hidden = subgraphs.chooser.nodes(batch.x).detach()
    cut = subgraphs.cut(batch.x)
    sums = torch.zeros(12, 8).double()
    kept = {int(n) for n in batch.x.edge_index[:, cut.high].flatten()}
    for node in kept:
        sums[int(batch.x.batch[node])] += hidden[node]
    torch.testing.assert_close(cut.chosen.detach(), sums)
    risk = cross_entropy(module.inner.head(subgraphs.encoder(cut.kept)), batch.y)
    assert found.item() == pytest.approx(risk.item() + 2 * contrast_by_hand(sums, batch.y))


# ----------------------------------------------------------------------------------------- DIR


def test_intervened_risks_put_every_kept_part_beside_every_rest():
    logits, shortcuts = torch.randn(5, 3).double(), torch.randn(4, 3).double()
    y = torch.tensor([0, 2, 1, 1, 0])
    weight = torch.rand(5).double()
    plain, weighted = [], []
    for shortcut in shortcuts:
        gate = [1 / (1 + math.exp(-value)) for value in shortcut]
        losses = []
        for row, label in zip(logits, y.tolist(), strict=True):
            z = [g * value.item() for g, value in zip(gate, row, strict=True)]
            losses.append(math.log(sum(map(math.exp, z))) - z[label])
        plain.append(sum(losses) / 5)
        both = zip(losses, weight.tolist(), strict=True)
        weighted.append(sum(loss * w for loss, w in both) / weight.sum().item())
    found = intervened_risks(logits, shortcuts, y, Classes(3))
    assert found.tolist() == pytest.approx(plain)
    found = intervened_risks(logits, shortcuts, y, Classes(3), weight)
    assert found.tolist() == pytest.approx(weighted)
    mean = sum(plain) / 4
    by_hand = sum((risk - mean) ** 2 for risk in plain) / 3
    assert variance(torch.tensor(plain).double()).item() == pytest.approx(by_hand)
    assert variance(torch.tensor([2.0])).item() == 0.0


@pytest.mark.parametrize(("seen", "epoch"), [(0, 0), (23, 0), (24, 1), (73, 3)])
def test_the_loss_of_dir_is_its_parts_and_grows_with_the_epoch(task, seen, epoch):
    learner = dir_(encoder, share=0.4, weight=0.5, variance=7.0)(task, 0)
    module = learner.module.double()
    module.rows.fill_(seen)
    batch = task.train.batch(torch.arange(12))
    batch.x.x = batch.x.x.double()
    found = learner.loss(batch)
    cut = module.subgraphs.cut(batch.x)
    logits = module.inner.head(module.subgraphs.encoder(cut.kept))
    shortcuts = module.shortcut(module.subgraphs.encoder(cut.rest))
    risks = torch.stack([cross_entropy(s.sigmoid() * logits, batch.y) for s in shortcuts])
    expected = cross_entropy(logits, batch.y) + cross_entropy(shortcuts, batch.y)
    expected = expected + 0.5 * epoch**1.6 * (risks.mean() + 7 * risks.var())
    torch.testing.assert_close(found, expected)
    learner.after_step(batch)
    assert int(module.rows) == seen + 12


def test_the_shortcut_of_dir_teaches_nothing_but_its_own_head(task):
    learner = dir_(encoder, share=0.4, weight=0.0)(task, 0)
    plain = ciga(encoder, share=0.4, contrast=0.0, head="linear")(task, 0)
    plain.module.inner.load_state_dict(learner.module.inner.state_dict())
    batch = task.train.batch(torch.arange(12))
    learner.loss(batch).backward()
    plain.loss(batch).backward()
    expected = dict(plain.module.inner.named_parameters())
    for name, parameter in learner.module.inner.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name].grad)
    assert all(bool((one.grad != 0).any()) for one in learner.module.shortcut.parameters())


# ---------------------------------------------------------------------------------------- ASAP


def test_asap_is_pygs_pooling_of_each_graph_by_itself(task):
    learner = asap(encoder, share=0.5)(task, 0)
    backbone = learner.module.backbone.double().eval()
    graphs = [graph.apply(lambda value: value.double() if value.is_floating_point() else value)
              for graph in odd_graphs()]  # fmt: skip
    found = backbone(Batch.from_data_list(graphs))
    for place, graph in enumerate(graphs):
        x, edges, weight, _, kept = backbone.pool(
            backbone.nodes.nodes(graph), graph.edge_index, torch.ones(graph.num_edges).double()
        )
        assert len(kept) == math.ceil(len(graph.x) / 2)
        own = backbone.encoder(Data(x=x, edge_index=edges, edge_weight=weight))
        torch.testing.assert_close(found[place], own[0])


def test_clusters_are_joined_by_the_weights_that_pyg_gives_them(task):
    backbone = asap(encoder, share=0.5)(task, 0).module.backbone.eval()
    read = []
    backbone.encoder.register_forward_pre_hook(lambda module, given: read.append(given[0]))
    batch = Batch.from_data_list(odd_graphs())
    backbone(batch)
    ones = torch.ones(batch.edge_index.shape[1])
    hidden = backbone.nodes.nodes(batch)
    _, edges, weight, _, _ = backbone.pool(hidden, batch.edge_index, ones, batch.batch)
    assert torch.equal(read[0].edge_index, edges)
    torch.testing.assert_close(read[0].edge_weight, weight)
    assert not torch.equal(weight, torch.ones_like(weight))


def test_asap_keeps_the_fittest_clusters_whatever_the_seed_and_learns_with_every_weight(task):
    for seed in range(4):
        learner = asap(encoder, share=0.5)(task, seed)
        backbone = learner.module.backbone
        learner.loss(task.train.batch(torch.arange(12))).backward()
        weights = {name: one for name, one in backbone.named_parameters() if one.requires_grad}
        assert all(one.grad is not None for one in weights.values())
        seen = []
        backbone.pool.gnn_score.register_forward_hook(lambda *call, seen=seen: seen.append(call[2]))
        graph = Data(x=torch.rand(6, 8), edge_index=torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]]))
        *_, kept = backbone.pool(graph.x, graph.edge_index, torch.ones(4))
        fittest = seen[0].flatten().argsort(descending=True)[:3]
        assert sorted(kept.tolist()) == sorted(fittest.tolist())


# --------------------------------------------------------------------------- scores of the edges


def test_scores_of_edges_are_the_choosers_or_the_gradient(task):
    batch = task.tests["unbiased"].batch(torch.arange(3))
    learner = ciga(encoder)(task, 0)
    scores = edge_scores(learner, batch)
    assert learner.module.training, "as it was"
    learner.module.eval()
    torch.testing.assert_close(scores, learner.module.subgraphs.cut(batch.x).scores)
    plain = erm(encoder)(task, 0)
    found = edge_scores(plain, batch)
    plain.module.double().eval()
    batch.x.x = batch.x.x.double()
    weight = torch.ones(len(found)).double()
    predicted = plain.predict(batch)
    for edge in range(0, len(found), 17):
        moved = weight.clone()
        moved[edge] += 1e-6
        batch.x.edge_weight = moved
        graph = int(batch.x.batch[batch.x.edge_index[0, edge]])
        best = int(predicted[graph].argmax())
        slope = (plain.predict(batch)[graph, best] - predicted[graph, best]).item() / 1e-6
        assert found[edge].item() == pytest.approx(abs(slope), rel=1e-2, abs=1e-5)
