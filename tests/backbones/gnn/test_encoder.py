"""GIN and GCN against dense matrices in float64, and what a graph encoder must not depend on."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

pytest.importorskip("torch_geometric", reason="needs the graph extra", exc_type=ImportError)

import torch_geometric.nn as pyg
from torch_geometric.data import Batch, Data

import hma
from hma.backbones.gnn import GCN, GIN, GraphEncoder
from hma.backbones.gnn.convolutions import Edges

WIDTH, INPUTS = 6, 3


def graph(nodes: int, edges: int, seed: int) -> Data:
    """A directed graph with the nodes' features in float64; edges may repeat and may be loops."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(nodes, INPUTS, generator=generator, dtype=torch.float64)
    ends = torch.randint(max(nodes, 1), (2, edges if nodes else 0), generator=generator)
    return Data(x=x, edge_index=ends, num_nodes=nodes)


def simple_graph(nodes: int, seed: int) -> Data:
    """An undirected graph without loops or repeated edges."""
    generator = torch.Generator().manual_seed(seed)
    upper = torch.triu(torch.rand(nodes, nodes, generator=generator) < 0.5, diagonal=1)
    x = torch.randn(nodes, INPUTS, generator=generator, dtype=torch.float64)
    return Data(x=x, edge_index=(upper | upper.T).nonzero().T.contiguous())


def used(kind: type[GraphEncoder], **options) -> GraphEncoder:
    """An encoder in eval mode whose norms and virtual node have left their starting values."""
    encoder = kind(INPUTS, **({"width": WIDTH, "num_layers": 3} | options)).double()
    for name, value in encoder.named_parameters():
        if "norm" in name or "virtual" in name:
            nn.init.normal_(value, mean=0.5, std=0.3)
    for name, value in encoder.named_buffers():
        if name.endswith("running_mean"):
            nn.init.normal_(value, std=0.3)
        if name.endswith("running_var"):
            nn.init.uniform_(value, 0.5, 2.0)
    return encoder.eval()


def normed(norm: nn.BatchNorm1d, rows: Tensor) -> Tensor:
    return (rows - norm.running_mean) / (norm.running_var + 1e-5).sqrt() * norm.weight + norm.bias


def adjacency(data: Data) -> Tensor:
    """``A[v, u]`` counts the edges from ``u`` to ``v``."""
    dense = torch.zeros(len(data.x), len(data.x), dtype=torch.float64)
    for source, target in data.edge_index.T.tolist():
        dense[target, source] += 1
    return dense


def convolved_by_hand(encoder: GraphEncoder, layer: int, nodes: Tensor, data: Data) -> Tensor:
    convolution, dense = encoder.convolutions[layer], adjacency(data)
    if isinstance(encoder, GIN):
        first, _, second = convolution.nn
        mixed = nodes + dense @ nodes
        hidden = (mixed @ first.weight.T + first.bias).clamp(min=0)
        return hidden @ second.weight.T + second.bias
    looped = dense + torch.eye(len(nodes), dtype=torch.float64)
    scale = torch.diag(looped.sum(dim=1) ** -0.5)
    return scale @ looped @ scale @ nodes @ convolution.lin.weight.T + convolution.bias


def heard_by_hand(virtual: nn.Module, state: Tensor, nodes: Tensor) -> Tensor:
    first, norm_1, _, second, norm_2, _, _ = virtual.layers
    heard = (state + nodes.sum(dim=0))[None]
    hidden = normed(norm_1, heard @ first.weight.T + first.bias).clamp(min=0)
    return normed(norm_2, hidden @ second.weight.T + second.bias).clamp(min=0)[0]


@torch.no_grad()
def features_by_hand(encoder: GraphEncoder, data: Data) -> Tensor:
    nodes, state, last = data.x, None, len(encoder.convolutions) - 1
    if encoder.virtual_start is not None:
        nodes = nodes @ encoder.embed.weight.T + encoder.embed.bias
        state = encoder.virtual_start[0]
    for layer, norm in enumerate(encoder.norms):
        if state is not None:
            nodes = nodes + state
        out = convolved_by_hand(encoder, layer, nodes, data)
        if encoder.order == "relu-norm":
            out = normed(norm, out.clamp(min=0))
        else:
            out = normed(norm, out)
            out = out if layer == last else out.clamp(min=0)
        if state is not None and layer < last:
            state = heard_by_hand(encoder.virtual_nodes[layer], state, nodes)
        nodes = out
    pools = {"mean": nodes.mean(dim=0), "max": nodes.amax(dim=0), "sum": nodes.sum(dim=0)}
    pooled = pools[encoder.pool]
    if encoder.project is not None:
        pooled = (pooled @ encoder.project[0].weight.T + encoder.project[0].bias).clamp(min=0)
    return pooled


KINDS = pytest.mark.parametrize("kind", [GIN, GCN])
OPTIONS = [
    {"pool": "mean"},
    {"pool": "max"},
    {"pool": "sum", "project": True},
    {"order": "norm-relu", "num_layers": 1},
    {"order": "norm-relu", "virtual_node": True, "dropout": 0.5},
    {"virtual_node": True, "num_layers": 1},
]


@KINDS
@pytest.mark.parametrize(
    "options", OPTIONS, ids=lambda options: "-".join(map(str, options.values()))
)
def test_features_are_those_of_dense_matrices(kind, options):
    encoder = used(kind, **options)
    graphs = [simple_graph(nodes, seed=nodes) for nodes in (1, 2, 5, 9)]
    expected = torch.stack([features_by_hand(encoder, data) for data in graphs])
    torch.testing.assert_close(encoder(Batch.from_data_list(graphs)), expected)


def test_gin_counts_repeated_directed_edges_and_loops_as_often_as_they_are_listed():
    encoder = used(GIN)
    data = graph(nodes=4, edges=15, seed=3)
    assert adjacency(data).diagonal().sum() > 0
    assert adjacency(data).max() > 1
    torch.testing.assert_close(encoder(data)[0], features_by_hand(encoder, data))


@KINDS
@settings(deadline=None, max_examples=30)
@given(
    sizes=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 12)), min_size=1, max_size=5),
    seed=st.integers(0, 100),
    options=st.sampled_from(OPTIONS),
)
def test_a_graph_in_eval_mode_does_not_depend_on_the_others_of_its_batch(
    kind, sizes, seed, options
):
    torch.manual_seed(seed)
    encoder = used(kind, **options)
    graphs = [graph(nodes, edges, seed + place) for place, (nodes, edges) in enumerate(sizes)]
    together = encoder(Batch.from_data_list(graphs))
    alone = torch.cat([encoder(Batch.from_data_list([data])) for data in graphs])
    assert together.shape == (len(graphs), WIDTH)
    torch.testing.assert_close(together, alone)


@KINDS
@pytest.mark.parametrize(
    "options", OPTIONS, ids=lambda options: "-".join(map(str, options.values()))
)
def test_the_order_of_the_nodes_does_not_matter(kind, options):
    encoder = used(kind, **options)
    data = graph(nodes=8, edges=20, seed=1)
    order = torch.randperm(8)
    place = torch.argsort(order)  # where each node went
    shuffled = Data(x=data.x[order], edge_index=place[data.edge_index][:, torch.randperm(20)])
    assert not torch.equal(shuffled.x, data.x)
    torch.testing.assert_close(encoder(shuffled), encoder(data))


@KINDS
def test_edges_matter_and_reach_as_far_as_there_are_layers(kind):
    path = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])  # 0 -> 1 -> 2 -> 3 -> 4
    data = Data(x=torch.randn(5, INPUTS).double().requires_grad_(), edge_index=path)
    encoder = used(kind, num_layers=3, width=32)
    last = {}
    encoder.norms[-1].register_forward_hook(lambda _, __, out: last.update(nodes=out))
    encoder(data)
    last["nodes"][4].sum().backward()
    reached = data.x.grad.abs().sum(dim=1).nonzero().flatten().tolist()
    assert reached == [1, 2, 3, 4]


@KINDS
def test_a_virtual_node_lets_nodes_without_any_path_between_them_meet(kind):
    data = Data(
        x=torch.randn(5, INPUTS).double().requires_grad_(), edge_index=torch.empty(2, 0).long()
    )
    for virtual, expected in ((False, [4]), (True, [0, 1, 2, 3, 4])):
        encoder = used(kind, num_layers=2, virtual_node=virtual, width=32)
        last = {}
        encoder.norms[-1].register_forward_hook(
            lambda _, __, out, last=last: last.update(nodes=out)
        )
        encoder(data)
        data.x.grad = None
        last["nodes"][4].sum().backward()
        assert data.x.grad.abs().sum(dim=1).nonzero().flatten().tolist() == expected


@KINDS
@pytest.mark.parametrize("layers", [1, 3])
def test_every_parameter_gets_a_gradient(kind, layers):
    encoder = kind(INPUTS, width=32, num_layers=layers, virtual_node=True, project=True).double()
    encoder(
        Batch.from_data_list([graph(5, 9, seed) for seed in range(4)])
    ).square().sum().backward()
    assert [name for name, value in encoder.named_parameters() if value.grad is None] == []


def test_the_default_gin_has_the_parameters_of_g_mixups_without_its_head():
    count = sum(value.numel() for value in GIN(7, project=True).parameters())
    first, other = (7 * 64 + 64) + (64 * 64 + 64), 2 * (64 * 64 + 64)
    assert count == first + 4 * other + 5 * (2 * 64) + (64 * 64 + 64)


def test_training_normalises_by_the_nodes_of_the_batch():
    encoder = GIN(INPUTS, width=WIDTH, num_layers=1, order="norm-relu").double().train()
    batch = Batch.from_data_list([graph(5, 9, seed) for seed in range(4)])
    last = {}
    encoder.norms[0].register_forward_hook(lambda _, __, out: last.update(nodes=out))
    encoder(batch)
    torch.testing.assert_close(last["nodes"].mean(dim=0), torch.zeros(WIDTH).double())
    assert encoder.norms[0].num_batches_tracked == 1


@KINDS
def test_a_training_batch_of_one_node_passes_with_the_running_statistics(kind):
    encoder = used(kind, virtual_node=True)
    before = copy.deepcopy(encoder.state_dict())
    single = Batch.from_data_list([graph(1, 0, seed=0)])
    expected = encoder(single)
    torch.testing.assert_close(encoder.train()(single), expected)
    for name, value in encoder.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)


def test_a_graph_without_nodes_has_a_row_of_zeros():
    graphs = [graph(3, 4, seed=0), graph(0, 0, seed=1)]
    for pool in ("mean", "max", "sum"):
        features = used(GIN, pool=pool)(Batch.from_data_list(graphs))
        assert features[1].tolist() == [0.0] * WIDTH


def test_a_memory_learns_from_graphs_and_its_encoder_follows():
    graphs = [simple_graph(4 + place % 3, seed=place) for place in range(12)]
    batch, y = Batch.from_data_list(graphs), torch.arange(12) % 2
    batch.x = batch.x.float()
    model = hma.HMA(GIN(INPUTS, width=16), 2, hma.HMAConfig(queue_size=12, slots_per_class=2))
    model(batch).sum().backward()
    assert all(value.grad is not None for value in model.backbone.parameters())
    model.remember(batch, y)
    with torch.no_grad():
        expected = copy.deepcopy(model.backbone).eval()(batch)
    torch.testing.assert_close(model.memory_state().features, expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"in_features": 0}, "in_features must be at least 1, got 0"),
        ({"num_layers": 0}, "num_layers must be at least 1, got 0"),
        ({"width": 0}, "width must be at least 1, got 0"),
        ({"dropout": 1.0}, r"dropout must be at least 0 and below 1, got 1\.0"),
        ({"pool": "maen"}, "pool must be one of .*, got 'maen'; did you mean 'mean'"),
        ({"order": "norm"}, "order must be one of 'relu-norm', 'norm-relu', got 'norm'"),
    ],
)
def test_an_impossible_argument_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        GIN(**({"in_features": 3} | options))


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (torch.zeros(2, 3), "got Tensor whose x is NoneType; .*one-hot degree"),
        (Data(edge_index=torch.empty(2, 0).long()), "got Data whose x is NoneType"),
        (Data(x=torch.ones(2, 3).long(), edge_index=torch.empty(2, 0).long()), r"got torch\.int64"),
    ],
)
def test_a_batch_without_usable_node_features_is_refused(batch, message):
    with pytest.raises(TypeError, match=message):
        GIN(3)(batch)


def test_node_features_of_another_width_are_named():
    data = Data(x=torch.zeros(2, 5), edge_index=torch.empty(2, 0).long())
    with pytest.raises(ValueError, match=r"batch\.x must have shape \(\*, 3\), got \(2, 5\)"):
        GCN(3)(data)


def with_edge_features(nodes: int, seed: int, width: int = 2) -> Data:
    data = simple_graph(nodes, seed)
    edges = data.edge_index.shape[1]
    generator = torch.Generator().manual_seed(seed + 1)
    data.edge_attr = torch.randn(edges, width, generator=generator, dtype=torch.float64)
    return data


@torch.no_grad()
def test_gin_reads_edge_features_as_gine_has_it():
    data, encoder = with_edge_features(7, seed=3), used(GIN, num_layers=1, edge_features=2)
    convolve = encoder.convolutions[0]
    summed = data.x.clone()
    for (source, target), edge in zip(data.edge_index.T.tolist(), data.edge_attr, strict=True):
        summed[target] += (data.x[source] + convolve.lin(edge)).relu()
    expected = normed(encoder.norms[0], convolve.nn(summed).relu()).mean(dim=0)
    torch.testing.assert_close(encoder(data)[0], expected)


@torch.no_grad()
def test_gcn_counts_an_edge_as_its_features_say():
    data, encoder = with_edge_features(7, seed=4), used(GCN, num_layers=1, edge_features=2)
    layer = encoder.convolutions[0]
    plain = GCN(INPUTS, width=WIDTH, num_layers=1).double().eval()
    own = {
        name.replace(".convolution.", "."): value for name, value in encoder.state_dict().items()
    }
    plain.load_state_dict({name: own[name] for name in plain.state_dict()})
    torch.testing.assert_close(encoder(data), plain(data))  # at its start every edge counts 1
    nn.init.normal_(layer.weight)
    weighed = torch.eye(7, dtype=torch.float64)
    for (source, target), edge in zip(data.edge_index.T.tolist(), data.edge_attr, strict=True):
        weighed[target, source] = 2 / (1 + torch.exp(-(edge * layer.weight).sum()))
    scale = weighed.sum(dim=1).rsqrt()
    mixed = scale[:, None] * weighed * scale @ data.x @ layer.convolution.lin.weight.T
    expected = normed(encoder.norms[0], (mixed + layer.convolution.bias).relu()).mean(dim=0)
    torch.testing.assert_close(encoder(data)[0], expected)


@pytest.mark.parametrize("kind", [GIN, GCN])
def test_edge_features_that_are_not_there_are_named(kind):
    encoder = used(kind, edge_features=2)
    with pytest.raises(TypeError, match=r"edge_attr must be a tensor .* got NoneType"):
        encoder(simple_graph(4, seed=0))
    wide = with_edge_features(4, seed=0, width=3)
    with pytest.raises(ValueError, match=r"batch.edge_attr must have shape \(\d+, 2\), got"):
        encoder(wide)
    wide.edge_attr = wide.edge_attr[:, :2].long()
    with pytest.raises(TypeError, match=r"floating dtype, got torch.int64"):
        encoder(wide)
    with pytest.raises(ValueError, match="edge_features must be at least 0, got -1"):
        kind(INPUTS, edge_features=-1)


def weighed(data: Data, weight: Tensor) -> Data:
    copied = copy.copy(data)
    copied.edge_weight = weight
    return copied


@KINDS
@pytest.mark.parametrize("pool", ["mean", "sum", "max"])
def test_pooled_nodes_are_the_features(kind, pool):
    encoder = used(kind, pool=pool)
    graphs = [simple_graph(nodes, seed=nodes) for nodes in (1, 4, 6)]
    nodes = encoder.nodes(Batch.from_data_list(graphs))
    assert nodes.shape == (11, WIDTH)
    by_graph = torch.split(nodes, [1, 4, 6])
    pools = {"mean": Tensor.mean, "sum": Tensor.sum, "max": Tensor.amax}
    expected = torch.stack([pools[pool](own, dim=0) for own in by_graph])
    torch.testing.assert_close(encoder(Batch.from_data_list(graphs)), expected)


@KINDS
@pytest.mark.parametrize("options", [{}, {"edge_features": 2}, {"virtual_node": True}])
def test_edges_of_weight_one_are_edges_without_weights(kind, options):
    encoder, data = used(kind, **options), with_edge_features(6, seed=5)
    ones = torch.ones(data.num_edges, dtype=torch.float64)
    torch.testing.assert_close(encoder(weighed(data, ones)), encoder(data))


@pytest.mark.parametrize("options", [{}, {"edge_features": 2}])
def test_an_edge_of_weight_zero_is_no_edge_of_a_gin(options):
    encoder, data = used(GIN, **options), with_edge_features(6, seed=6)
    kept = torch.arange(data.num_edges) % 3 > 0
    fewer = Data(data.x, data.edge_index[:, kept], data.edge_attr[kept])
    torch.testing.assert_close(encoder(weighed(data, kept.double())), encoder(fewer))


@torch.no_grad()
def test_a_gcn_weighs_messages_and_not_degrees():
    encoder, data = used(GCN, num_layers=1), simple_graph(6, seed=7)
    weight = torch.rand(data.num_edges, dtype=torch.float64)
    looped = adjacency(data) + torch.eye(6, dtype=torch.float64)
    scale = torch.diag(looped.sum(dim=1) ** -0.5)
    looped[data.edge_index[1], data.edge_index[0]] = weight
    layer = encoder.convolutions[0]
    mixed = scale @ looped @ scale @ data.x @ layer.lin.weight.T + layer.bias
    expected = normed(encoder.norms[0], mixed.clamp(min=0))
    torch.testing.assert_close(encoder.nodes(weighed(data, weight)), expected)


@KINDS
def test_weights_of_edges_get_gradients(kind):
    data = simple_graph(6, seed=8)
    weight = torch.rand(data.num_edges, dtype=torch.float64, requires_grad=True)
    encoder = used(kind, width=16)
    torch.autograd.gradcheck(lambda values: encoder(weighed(data, values)), weight)


def test_as_many_weights_as_edges_are_wanted():
    data = simple_graph(4, seed=0)
    with pytest.raises(ValueError, match=r"edge_weight must have shape \(\d+,\), got \(1,\)"):
        used(GIN)(weighed(data, torch.ones(1)))


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("kind", [GIN, GCN])
def test_a_layer_is_that_of_pyg(kind, loops):
    encoder, data = used(kind, num_layers=1), simple_graph(6, seed=9)
    ends = [data.edge_index, torch.tensor([[2, 4], [2, 4]])] if loops else [data.edge_index]
    data.edge_index = torch.cat(ends, dim=1)
    own = encoder.convolutions[0]
    theirs = pyg.GINConv(own.nn) if kind is GIN else pyg.GCNConv(INPUTS, WIDTH)
    theirs.double().load_state_dict(own.state_dict())
    expected = normed(encoder.norms[0], theirs(data.x, data.edge_index).relu())
    torch.testing.assert_close(encoder.nodes(data), expected)


@KINDS
def test_a_layer_of_wide_features_is_that_of_pyg(kind):
    data = simple_graph(6, seed=9)
    data.x = torch.randn(6, 50, dtype=torch.float64)
    own = kind(50, width=8).double().convolutions[0]
    theirs = pyg.GINConv(own.nn) if kind is GIN else pyg.GCNConv(50, 8)
    theirs.double().load_state_dict(own.state_dict())
    source, target = data.edge_index
    expected = theirs(data.x, data.edge_index)
    torch.testing.assert_close(own(data.x, Edges(source, target, nodes=6)), expected)


@pytest.mark.parametrize("kind", [GIN, GCN])
def test_a_seed_gives_the_weights_that_pygs_layers_draw(kind):
    torch.manual_seed(3)
    encoder = kind(INPUTS, width=WIDTH, num_layers=2)
    torch.manual_seed(3)
    for layer, into in zip(encoder.convolutions, (INPUTS, WIDTH), strict=True):
        if kind is GIN:
            inner = nn.Sequential(nn.Linear(into, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
            theirs = pyg.GINConv(inner)
        else:
            theirs = pyg.GCNConv(into, WIDTH)
        for name, value in theirs.state_dict().items():
            torch.testing.assert_close(layer.state_dict()[name], value, rtol=0, atol=0)


WITHOUT_MUCH = {
    "no edges": (4, []),
    "an isolated node": (3, [(0, 1), (1, 0)]),
    "one node": (1, []),
}


@KINDS
@pytest.mark.parametrize("case", WITHOUT_MUCH)
@pytest.mark.parametrize("order", ["relu-norm", "norm-relu"])
def test_graphs_with_little_in_them_follow_the_formula_and_train(kind, case, order):
    nodes, ends = WITHOUT_MUCH[case]
    data = simple_graph(nodes, seed=0)
    data.edge_index = torch.tensor(ends, dtype=torch.long).view(-1, 2).T
    encoder = used(kind, order=order)
    torch.testing.assert_close(encoder(data)[0], features_by_hand(encoder, data))
    encoder.train()(Batch.from_data_list([data, data])).sum().backward()
    assert all(torch.isfinite(value.grad).all() for value in encoder.parameters())
