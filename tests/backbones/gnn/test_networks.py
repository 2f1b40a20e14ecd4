"""The networks of OGB's example, CIGA's code and g-mixup's against their formulas, node by node."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

pytest.importorskip("torch_geometric", reason="needs the graph extra", exc_type=ImportError)

from torch_geometric.data import Batch, Data

from hma.backbones import backbone_for, gcn, gin
from hma.backbones.gnn import GCN, GIN, GraphEncoder
from hma.backbones.gnn.convolutions import input_layer, multi_hot

ATOMS, BONDS = (119, 5, 12, 12, 10, 6, 6, 2, 2), (5, 6, 2)
MOLECULES = (*ATOMS, 0, *BONDS)
KINDS = pytest.mark.parametrize("make", [gin, gcn])


def task(*shape: int) -> SimpleNamespace:
    return SimpleNamespace(name="graphs", kind="graph", shape=shape)


def codes(rows: int, sizes: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.stack([torch.randint(size, (rows,), generator=generator) for size in sizes], dim=1)


def molecule(nodes: int, seed: int) -> Data:
    """An undirected graph with OGB's codes, the two directions of an edge with the same."""
    generator = torch.Generator().manual_seed(seed)
    upper = torch.triu(torch.rand(nodes, nodes, generator=generator) < 0.4, diagonal=1)
    one_way = upper.nonzero().T
    bonds = codes(one_way.shape[1], BONDS, generator)
    return Data(
        x=codes(nodes, ATOMS, generator),
        edge_index=torch.cat([one_way, one_way.flip(0)], dim=1),
        edge_attr=torch.cat([bonds, bonds]),
    )


def used(encoder: GraphEncoder) -> GraphEncoder:
    """In float64 and eval mode, all that starts at 0 or 1 moved away from it."""
    for name, value in encoder.named_parameters():
        if "norm" in name or "virtual" in name or "eps" in name or name.endswith("mlp.1.weight"):
            nn.init.normal_(value, mean=0.5, std=0.3)
    for name, value in encoder.named_buffers():
        if name.endswith("running_mean"):
            nn.init.normal_(value, std=0.3)
        if name.endswith("running_var"):
            nn.init.uniform_(value, 0.5, 2.0)
    return encoder.double().eval()


def tabled(layer: nn.Linear, sizes: tuple[int, ...], row: Tensor) -> Tensor:
    """The sum of one row of each column's table."""
    tables = layer.weight.T.split(sizes)  # [(size, W), ...]
    return sum(table[code] for table, code in zip(tables, row.tolist(), strict=True))


def rectified_by_hand(layer: nn.Module, nodes: Tensor, data: Data, said: list[Tensor]) -> Tensor:
    """One layer of OGB's example, edge by edge."""
    ends = list(zip(data.edge_index.T.tolist(), said, strict=True))
    if hasattr(layer, "mlp"):
        summed = [(1 + layer.eps) * node for node in nodes]
        for (source, target), edge in ends:
            summed[target] = summed[target] + (nodes[source] + edge).clamp(min=0)
        return layer.mlp(torch.stack(summed))
    nodes = nodes @ layer.linear.weight.T + layer.linear.bias
    degree = [1 + sum(source == v for (source, _), _ in ends) for v in range(len(nodes))]
    mixed = [(x + layer.root[0]).clamp(min=0) / d for x, d in zip(nodes, degree, strict=True)]
    for (source, target), edge in ends:
        message = (nodes[source] + edge).clamp(min=0)
        mixed[target] = mixed[target] + message / (degree[source] * degree[target]) ** 0.5
    return torch.stack(mixed)


@torch.no_grad()
def nodes_by_hand(encoder: GraphEncoder, data: Data) -> Tensor:
    nodes = torch.stack([tabled(encoder.embed, ATOMS, row) for row in data.x])
    state, last = encoder.virtual_start, len(encoder.convolutions) - 1
    for place, (layer, norm) in enumerate(zip(encoder.convolutions, encoder.norms, strict=True)):
        said = [tabled(layer.edge_encoder, BONDS, row) for row in data.edge_attr]
        nodes = nodes if state is None else nodes + state
        out = norm(rectified_by_hand(layer, nodes, data, said))
        if state is not None and place < last:
            state = encoder.virtual_nodes[place].layers(state + nodes.sum(dim=0))
        nodes = out if place == last else out.clamp(min=0)
    return nodes


@KINDS
@pytest.mark.parametrize("virtual_node", [False, True])
def test_ogbs_networks_are_those_of_their_formulas(make, virtual_node):
    build = make("ogb", virtual_node=virtual_node, width=7, num_layers=3)
    encoder = used(build(task(*MOLECULES)))
    graphs = [molecule(nodes, seed=nodes) for nodes in (1, 2, 6, 9)]
    expected = [nodes_by_hand(encoder, data).mean(dim=0) for data in graphs]
    torch.testing.assert_close(encoder(Batch.from_data_list(graphs)), torch.stack(expected))


@KINDS
def test_cigas_networks_have_rectified_messages_without_edges(make):
    encoder = used(make("ciga", width=6, pool="max")(task(4)))
    data = molecule(7, seed=3)
    data.x, data.edge_attr = torch.randn(7, 4, dtype=torch.float64), None
    nodes = encoder.embed(data.x)
    for place, (layer, norm) in enumerate(zip(encoder.convolutions, encoder.norms, strict=True)):
        nothing = [torch.zeros(6)] * data.num_edges
        nodes = norm(rectified_by_hand(layer, nodes, data, nothing))
        nodes = nodes.clamp(min=0) if place < 2 else nodes
    torch.testing.assert_close(encoder(data)[0], nodes.amax(dim=0))


@KINDS
def test_published_sizes(make):
    ogb, ciga, mixup = (make(style)(task(*shape)) for style, shape in
                        (("ogb", MOLECULES), ("ciga", (7,)), ("g-mixup", (7,))))  # fmt: skip
    assert [len(one.convolutions) for one in (ogb, ciga, mixup)] == [5, 3, 5]
    assert [one.feature_dim for one in (ogb, ciga, mixup)] == [300, 32, 64]
    assert [one.dropout.p for one in (ogb, ciga, mixup)] == [0.5, 0.3, 0.0]
    assert [one.project is None for one in (ogb, ciga, mixup)] == [True, True, False]


def test_the_parameters_of_ogbs_gin_are_as_many_as_theirs():
    width = 300
    tables = sum(ATOMS) * width
    layer = (width * 2 * width + 2 * width) + 4 * width + (2 * width * width + width) + 1
    expected = tables + 5 * (layer + sum(BONDS) * width + 2 * width)
    encoder = gin("ogb")(task(*MOLECULES))
    assert sum(value.numel() for value in encoder.parameters()) == expected


@pytest.mark.parametrize(("sizes", "name"), [(ATOMS, "AtomEncoder"), (BONDS, "BondEncoder")])
def test_codes_become_what_ogbs_encoders_make_of_them(sizes, name):
    theirs_module = pytest.importorskip("ogb.graphproppred.mol_encoder", exc_type=ImportError)
    theirs = getattr(theirs_module, name)(emb_dim=8)
    tables = [parameter.detach() for parameter in theirs.parameters()]
    assert tuple(len(table) for table in tables) == sizes
    ours = input_layer(sizes, 8)
    ours.weight.data = torch.cat(tables).T.contiguous()
    rows = codes(50, sizes, torch.Generator().manual_seed(0))
    torch.testing.assert_close(ours(multi_hot(rows, sizes)), theirs(rows))


def test_each_table_starts_as_wide_as_ogbs():
    torch.manual_seed(0)
    tables = input_layer(ATOMS, 300).weight.T.split(ATOMS)
    for table in tables:
        bound = (6 / (len(table) + 300)) ** 0.5
        assert 0.9 * bound < table.abs().max() <= bound


@pytest.mark.parametrize("wrong", [[[0, 3]], [[2, 0]], [[-1, 0]]])
def test_a_code_without_a_value_is_refused_and_never_taken_for_another_columns(wrong):
    with pytest.raises(RuntimeError, match="out of bounds"):
        multi_hot(torch.tensor(wrong), sizes=(2, 3))


@KINDS
def test_weights_of_one_change_nothing_and_weights_of_zero_send_nothing(make):
    encoder, data = used(make("ogb", width=5)(task(*MOLECULES))), molecule(6, seed=1)
    plain = encoder.nodes(data)
    data.edge_weight = torch.ones(data.num_edges, dtype=torch.float64)
    torch.testing.assert_close(encoder.nodes(data), plain)
    data.edge_weight = torch.zeros(data.num_edges, dtype=torch.float64)
    silent = encoder.nodes(data)
    data.edge_attr = codes(data.num_edges, BONDS, torch.Generator().manual_seed(9))
    torch.testing.assert_close(encoder.nodes(data), silent, rtol=0, atol=0)


@KINDS
@pytest.mark.parametrize("nodes", [1, 4])
def test_graphs_without_edges_train(make, nodes):
    encoder = make("ogb", width=5, virtual_node=True)(task(*MOLECULES))
    data = molecule(nodes, seed=0)
    data.edge_index, data.edge_attr = torch.empty(2, 0).long(), torch.empty(0, 3).long()
    features = encoder(Batch.from_data_list([data, data]))
    features.sum().backward()
    assert torch.isfinite(features).all()
    assert features.shape == (2, 5)


@pytest.mark.parametrize("style", ["g-mixup", "ogb", "ciga"])
@settings(deadline=None, max_examples=15)
@given(nodes=st.integers(1, 7), seed=st.integers(0, 50), make=st.sampled_from([gin, gcn]))
def test_the_order_of_nodes_and_edges_does_not_matter(style, nodes, seed, make):
    torch.manual_seed(seed)
    encoder = used(make(style, width=4)(task(*MOLECULES)))
    data = molecule(nodes, seed)
    order, edges = torch.randperm(nodes), torch.randperm(data.num_edges)
    moved = torch.argsort(order)[data.edge_index][:, edges]
    shuffled = Data(data.x[order], moved, data.edge_attr[edges])
    torch.testing.assert_close(encoder.nodes(shuffled), encoder.nodes(data)[order])


@pytest.mark.parametrize(("name", "kind"), [("gin", GIN), ("gcn", GCN)])
def test_a_backbone_by_name_takes_codes(name, kind):
    encoder = backbone_for(name)(task(*MOLECULES))
    assert isinstance(encoder, kind)
    assert encoder.layers == "ogb"
    graphs = [molecule(nodes, seed=nodes) for nodes in (3, 5)]
    assert encoder(Batch.from_data_list(graphs)).shape == (2, encoder.feature_dim)


def test_plain_layers_take_codes_too():
    graphs = Batch.from_data_list([molecule(nodes, seed=nodes) for nodes in (3, 5)])
    for kind in (GIN, GCN):
        encoder = kind(ATOMS, edge_features=BONDS, width=8)
        encoder(graphs).sum().backward()
        assert all(value.grad is not None for value in encoder.parameters())


def test_codes_and_features_are_not_mistaken_for_each_other():
    data = molecule(3, seed=0)
    with pytest.raises(TypeError, match=r"got torch.int64; .*values of each column"):
        GIN(9)(data)
    data.x = data.x.float()
    with pytest.raises(TypeError, match=r"codes of dtype torch.int64, got torch.float32"):
        GIN(ATOMS)(data)
    data.x, data.edge_attr = data.x.long(), data.edge_attr.float()
    with pytest.raises(TypeError, match=r"edge_attr must be codes of dtype .* got torch.float32"):
        GIN(ATOMS, edge_features=BONDS)(data)


def test_an_unknown_style_is_named():
    with pytest.raises(ValueError, match=r"style must be one of .*, got 'obg'; did you mean 'ogb'"):
        gin("obg")
