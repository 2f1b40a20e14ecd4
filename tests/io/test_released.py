"""The released ViT module's formula, written naively, beside ours with the same weights."""

import math

import pytest
import torch
from torch import Tensor, nn

from hma import CheckpointError, load_released

F, L, C, M, M2, HEADS = 12, 4, 3, 6, 2, 4


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(5, F)

    def forward(self, x):
        return self.body(x)


def released_state(num_classes=C, queue=M, slots=M2, abd=True, prefix=""):
    width, labels = F + L, max(num_classes, 2)
    shapes = {"label_embeddings.weight": (labels + 1, L)}
    shapes |= {"fc.weight": (num_classes, width), "fc.bias": (num_classes,)}
    for name in ("encoder", "momen_encoder"):
        shapes |= {f"{name}.body.weight": (F, 5), f"{name}.body.bias": (F,)}
        shapes |= {f"{name}.head.weight": (7, F), f"{name}.head.bias": (7,)}  # never called
    for block in ["local_read_block"] * bool(queue) + ["ABD_block"] * abd:
        for layer in ("fc_q", "fc_k", "fc_v"):
            shapes |= {f"{block}.mab.{layer}.weight": (width, width)}
            shapes |= {f"{block}.mab.{layer}.bias": (width,)}
        for layer in ("ln0", "ln0KV", "ln1"):
            shapes |= {f"{block}.mab.{layer}.{kind}": (width,) for kind in ("weight", "bias")}
        shapes |= {f"{block}.mab.rff.0.weight": (4 * width, width)}
        shapes |= {f"{block}.mab.rff.0.bias": (4 * width,)}
        shapes |= {f"{block}.mab.rff.3.weight": (width, 4 * width)}
        shapes |= {f"{block}.mab.rff.3.bias": (width,)}
    if queue:
        shapes |= {"queue": (queue, width)}
    if slots and abd:
        shapes |= {"global_memories": (labels * slots, F)}
    state = {prefix + name: torch.randn(shape) * 0.5 for name, shape in shapes.items()}
    if queue:
        state[prefix + "queue_ptr"] = torch.tensor([2])
    return state


def block(state: dict[str, Tensor], name: str, query: Tensor, seen: Tensor, top_k) -> Tensor:
    """Pre-LN, scale sqrt(D), identity residual, heads as contiguous slices of D."""
    get = {key.removeprefix(f"{name}.mab."): v.double() for key, v in state.items() if name in key}

    def norm(x, ln):
        shape = x.shape[-1:]
        return nn.functional.layer_norm(x, shape, get[f"{ln}.weight"], get[f"{ln}.bias"], 1e-12)

    def linear(x, fc):
        return x @ get[f"{fc}.weight"].T + get[f"{fc}.bias"]

    q, memory = linear(norm(query, "ln0"), "fc_q"), norm(seen, "ln0KV")
    k, v = linear(memory, "fc_k"), linear(memory, "fc_v")
    width, mixed = len(query) // HEADS, torch.zeros_like(query)
    for head in range(HEADS):
        part = slice(head * width, (head + 1) * width)
        weights = torch.softmax(k[:, part] @ q[part] / math.sqrt(len(query)), dim=0)
        if top_k is not None and top_k < len(weights):
            kept = weights.topk(top_k).indices
            weights = torch.zeros_like(weights).index_copy(0, kept, weights[kept])
        mixed[part] = weights @ v[:, part]
    hidden = mixed + query
    inner = nn.functional.gelu(linear(norm(hidden, "ln1"), "rff.0"))
    return hidden + linear(inner, "rff.3")


def released_logits(state, x, num_classes=C, top_k=None) -> Tensor:
    d = {name: value.double() for name, value in state.items()}
    table = d["label_embeddings.weight"]
    features = x.double() @ d["encoder.body.weight"].T + d["encoder.body.bias"]
    tokens = [torch.cat([row, table[-1]]) for row in features]
    if "queue" in d:
        tokens = [
            block(state, "local_read_block", t, torch.stack([t, *d["queue"]]), top_k)
            for t in tokens
        ]
    if any(name.startswith("ABD_block") for name in d):
        slots = []
        if "global_memories" in d:
            labels = torch.arange(max(num_classes, 2)).repeat_interleave(M2)
            slots = list(torch.cat([d["global_memories"], table[labels]], dim=1))
        seen = torch.stack([*tokens, *slots])
        tokens = [block(state, "ABD_block", t, seen, top_k) for t in tokens]
    return torch.stack(tokens) @ d["fc.weight"].T + d["fc.bias"]


@pytest.mark.parametrize("num_classes", [C, 1])
@pytest.mark.parametrize("top_k", [None, 3])
@pytest.mark.parametrize(
    "parts",
    [{}, {"queue": 0}, {"slots": 0}, {"abd": False}],
    ids=["hma", "abd+syn", "abd+rma", "rma"],
)
def test_a_released_checkpoint_gives_the_released_logits(num_classes, top_k, parts):
    state = released_state(num_classes, **parts)
    model = load_released(state, Encoder(), num_heads=HEADS, top_k=top_k)
    x = torch.randn(4, 5)
    expected = released_logits(state, x, num_classes, top_k)
    torch.testing.assert_close(model(x).double(), expected, rtol=1e-5, atol=1e-5)


def test_a_released_param_checkpoint_gives_the_released_logits():
    state = released_state(queue=M, slots=0)
    width = F + L
    state = {n: v for n, v in state.items() if n not in ("queue", "queue_ptr")}
    for name in ("encoder", "momen_encoder"):  # without label embeddings a token is its features
        state[f"{name}.body.weight"] = torch.randn(width, 5)
        state[f"{name}.body.bias"] = torch.randn(width)
    backbone = Encoder()
    backbone.body = nn.Linear(5, width)
    model = load_released(state, backbone, num_heads=HEADS)
    x = torch.randn(4, 5)
    d = {name: value.double() for name, value in state.items()}
    tokens = x.double() @ d["encoder.body.weight"].T + d["encoder.body.bias"]
    for name in ("local_read_block", "ABD_block"):
        tokens = torch.stack([block(state, name, t, t[None], None) for t in tokens])
    expected = tokens @ d["fc.weight"].T + d["fc.bias"]
    torch.testing.assert_close(model(x).double(), expected, rtol=1e-5, atol=1e-5)


def test_a_checkpoint_with_null_keys_is_refused_not_misread():
    state = released_state() | {"ABD_block.mab.null_k": torch.zeros(1, 1, F + L)}
    with pytest.raises(CheckpointError, match=r"ABD_block.mab.null_k.*changes the logits"):
        load_released(state, Encoder(), num_heads=HEADS)


def test_writing_goes_on_where_the_released_pointer_stood():
    model = load_released(released_state(), Encoder(), num_heads=HEADS)
    before = model.real.queue.features.clone()
    x = torch.randn(3, 5)
    expected = model.momentum_encoder(x)
    model.remember(x, torch.tensor([0, 1, 2]))
    torch.testing.assert_close(model.real.queue.features[2:5], expected)
    torch.testing.assert_close(model.real.queue.features[[0, 1, 5]], before[[0, 1, 5]])


def test_the_momentum_encoder_is_the_released_one():
    state = released_state()
    model = load_released(state, Encoder(), num_heads=HEADS)
    weight = model.momentum_encoder.encoder.body.weight
    torch.testing.assert_close(weight.data, state["momen_encoder.body.weight"])


def test_a_prefix_before_every_name_is_understood():
    state = released_state()
    prefixed = {f"net.{name}": value for name, value in state.items()}
    x = torch.randn(4, 5)
    ours = load_released(state, Encoder(), num_heads=HEADS)(x)
    torch.testing.assert_close(load_released(prefixed, Encoder(), num_heads=HEADS)(x), ours)


def test_a_foreign_state_is_refused_by_name():
    with pytest.raises(CheckpointError, match=r"no released HMA checkpoint.*label_embeddings"):
        load_released({"conv.weight": torch.zeros(3)}, Encoder())


def test_an_encoder_of_another_shape_is_refused_and_keeps_its_weights():
    backbone = Encoder()
    backbone.body = nn.Linear(6, F)
    before = backbone.body.weight.clone()
    with pytest.raises(CheckpointError, match=r"does not fit the released encoder.*body.weight"):
        load_released(released_state(), backbone, num_heads=HEADS)
    torch.testing.assert_close(backbone.body.weight.data, before.data, rtol=0, atol=0)
