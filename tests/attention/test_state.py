"""All state is in parameters and buffers: it survives copies, dtypes and every way of changing it.

The prediction a model should give is that of ``oracle.predict``, which reads weights and buffers
alone, or that of a model built anew from its ``state_dict``, which has never cached anything.
"""

import copy
from collections import deque

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from read_designs import READS, first_read, opened
from torch import nn
from torch.nn.functional import cross_entropy

from benchmarks.reference import predict
from hma import HMA, HMAConfig

WIDTH, CLASSES = 8, 3
CONTEXTS = ("batch", "alone", "anchors")
SMALL = {"label_dim": 4, "queue_size": 6, "slots_per_class": 2, "num_heads": 2, "momentum": 0.9}


def build(seed=0, **changes):
    torch.manual_seed(seed)
    backbone = nn.Sequential(nn.Linear(5, WIDTH), nn.Tanh())
    return opened(HMA(backbone, CLASSES, HMAConfig(**SMALL | changes), feature_dim=WIDTH))


def filled(seed=0, **changes):
    """A model in eval mode whose queue has wrapped around once and that has anchors."""
    model = build(seed, **changes)
    write(model, range(6))
    write(model, range(6, 9))
    model.set_anchors(torch.randn(4, 5))
    return model.eval()


def write(model, ids):
    """Remember one row for each id; its input and its class follow from the id."""
    ids = torch.tensor(list(ids), dtype=torch.long)
    model.remember(inputs(ids), ids % CLASSES, ids=ids)


def inputs(ids):
    return torch.sin(ids[:, None] * torch.arange(1.0, 6.0))  # (B, 5)


def rebuilt(model):
    """A model of its own, made from the state of ``model``, with nothing cached."""
    fresh = HMA(copy.deepcopy(model.backbone), CLASSES, model.config, feature_dim=WIDTH)
    fresh.to(model.head.weight.dtype)
    fresh.load_state_dict(model.state_dict())
    fresh.context = model.context
    return fresh.train(model.training)


def assert_same_state(left, right):
    assert left.state_dict().keys() == right.state_dict().keys()
    for name, value in left.state_dict().items():
        assert torch.equal(value, right.state_dict()[name]), name


X = inputs(torch.arange(100, 103))


# ---------------------------------------------------------------------- state_dict


@given(
    size=st.integers(1, 7),
    before=st.lists(st.integers(0, 9), max_size=5),
    after=st.integers(0, 9),
    queue_labels=st.sampled_from(["live", "frozen"]),
    design=st.sampled_from(list(READS)),
)
@settings(deadline=None, max_examples=40, derandomize=True)
def test_a_reloaded_model_predicts_and_writes_on_as_the_saved_one(
    size, before, after, queue_labels, design
):
    changes = READS[design] | {"queue_size": size, "queue_labels": queue_labels}
    model = build(**changes).eval()
    oracle, stamp = deque(maxlen=size), 0
    for count in before:
        write(model, range(stamp, stamp + count))
        oracle.extend(range(stamp, stamp + count))
        stamp += count
    resumed = build(seed=1, **changes).eval()
    resumed.load_state_dict(model.state_dict())
    assert torch.equal(resumed(X), model(X))
    assert resumed.memory_state().ids.tolist() == list(oracle)
    for one in (model, resumed):
        write(one, range(stamp, stamp + after))
    oracle.extend(range(stamp, stamp + after))
    assert resumed.memory_state().ids.tolist() == list(oracle)
    assert_same_state(resumed, model)
    assert torch.equal(resumed(X), model(X))


@pytest.mark.parametrize(("stored", "own"), [(4, 0), (4, 2), (2, 5), (0, 3)])
def test_any_number_of_anchors_survives_state_dict(stored, own):
    model, other = filled(), filled(seed=1)
    model.set_anchors(torch.randn(stored, 5))
    other.set_anchors(torch.randn(own, 5))
    other.load_state_dict(model.state_dict())
    assert torch.equal(other.anchors, model.anchors)
    for context in CONTEXTS if stored else ("batch", "alone"):
        model.context = other.context = context
        assert torch.equal(other(X), model(X))


@pytest.mark.parametrize(
    ("changes", "tensor", "theirs", "ours"),
    [
        ({"queue_size": 9}, "real.queue.features", "[9, 8]", "[6, 8]"),
        ({"slots_per_class": 3}, "synthetic.slots", "[9, 8]", "[6, 8]"),
        ({"label_dim": 6}, "tokens.table.weight", "[4, 6]", "[4, 4]"),
        ({"width": 4}, "tokens.narrow.weight", "[4, 12]", "[6, 12]"),
    ],
)
def test_a_state_of_other_sizes_is_refused_with_the_tensor_and_both_shapes(
    changes, tensor, theirs, ours
):
    with pytest.raises(RuntimeError) as raised:
        build(width=6).load_state_dict(build(**{"width": 6} | changes).state_dict())
    field, value = next(iter(changes.items()))
    assert f"{field} is {value} in the state" in str(raised.value)
    line = next(line for line in str(raised.value).splitlines() if f"for {tensor}:" in line)
    assert theirs in line
    assert ours in line


# ------------------------------------------------------------------------ deepcopy


def test_a_deepcopy_predicts_the_same_and_holds_the_same():
    model = filled()
    twin = copy.deepcopy(model)
    assert_same_state(twin, model)
    assert torch.equal(twin(X), model(X))


@pytest.mark.parametrize("frozen", [False, True])
@torch.no_grad()
def test_what_happens_to_a_deepcopy_leaves_the_original_as_it_was(frozen):
    model = filled()
    model.freeze_memory(frozen)
    logits, state = model(X), copy.deepcopy(model.state_dict())
    twin = copy.deepcopy(model)
    twin.freeze_memory(False)
    write(twin, range(20, 24))
    twin.tokens.table.weight.mul_(3)
    twin.set_anchors(torch.randn(2, 5))
    assert torch.equal(model(X), logits)
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name]), name
    torch.testing.assert_close(twin(X), predict(twin, twin.backbone(X)))


def projections_of_memory(model):
    """A list that grows by the number of rows whenever memory or batch is projected."""
    rows = []
    first_read(model).to_keys_values.register_forward_hook(
        lambda module, inputs, output: rows.append(len(inputs[0]))
    )
    return rows


@torch.no_grad()
def test_a_deepcopy_shares_no_cached_projection():
    model = filled()
    model(X)
    twin = copy.deepcopy(model)
    twin(X)
    rows, twin_rows = projections_of_memory(model), projections_of_memory(twin)
    for _ in range(2):
        model(X)
        twin(X)
    assert rows == twin_rows == [len(X), len(X)]


# ------------------------------------------------------------- dtypes and autocast


def test_double_precision_and_back_changes_no_bit():
    model = filled()
    before, state = model(X), copy.deepcopy(model.state_dict())
    model.double()
    torch.testing.assert_close(model(X.double()).float(), before)
    model.to(torch.float32)
    assert torch.equal(model(X), before)
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name]), name
        assert value.dtype == state[name].dtype, name


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_converted_model_writes_rows_of_its_own_dtype(dtype):
    model, ids = build().to(dtype), torch.tensor([7, 8])
    model.remember(inputs(ids).to(dtype), ids % CLASSES, ids=ids)
    queue, memory = model.real.queue, model.memory_state()
    assert queue.labels.dtype == queue.ids.dtype == queue.written.dtype == torch.long
    assert memory.ids.tolist() == [7, 8]
    assert memory.features.dtype == dtype
    with torch.no_grad():  # the slow copy that wrote them still was the backbone
        assert torch.equal(memory.features, model.backbone(inputs(ids).to(dtype)))


@pytest.mark.parametrize("design", READS)
def test_bfloat16_predicts_near_float32(design):
    model = filled(**READS[design])
    near = copy.deepcopy(model).to(torch.bfloat16)(X.to(torch.bfloat16))
    assert near.dtype == torch.bfloat16
    torch.testing.assert_close(near.float(), model(X), rtol=0.05, atol=0.05)


@pytest.mark.parametrize("design", READS)
def test_bfloat16_autocast_predicts_and_learns_near_float32(design):
    model = filled(dropout=0.0, **READS[design]).train()
    plain = copy.deepcopy(model)
    y = torch.tensor([0, 1, 2])
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(X)
        cross_entropy(logits, y).backward()
    cross_entropy(plain(X), y).backward()
    torch.testing.assert_close(logits.float(), plain(X), rtol=0.05, atol=0.05)
    wanted = {name: p.grad for name, p in plain.named_parameters() if p.grad is not None}
    assert {"synthetic.slots", "tokens.table.weight", "backbone.0.weight"} <= wanted.keys()
    for name, parameter in model.named_parameters():
        if name in wanted:
            apart = (parameter.grad - wanted[name]).norm()
            assert apart <= 0.2 * wanted[name].norm(), name


def test_rows_written_under_autocast_are_near_those_written_without_and_stay_float32():
    model, plain = build(), build()
    with torch.autocast("cpu", torch.bfloat16):
        write(model, range(4))
    write(plain, range(4))
    memory, wanted = model.memory_state(), plain.memory_state()
    assert memory.features.dtype == torch.float32
    assert torch.equal(memory.labels, wanted.labels)
    torch.testing.assert_close(memory.features, wanted.features, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("design", READS)
@torch.no_grad()
def test_a_projection_cached_under_autocast_is_not_used_without_and_the_reverse(design):
    model = filled(**READS[design])
    plain = rebuilt(model)(X)
    with torch.autocast("cpu", torch.bfloat16):
        lower = rebuilt(model)(X)
    for _ in range(2):
        assert torch.equal(model(X), plain)
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(model(X), lower)


# ---------------------------------------------------------------- the cache in eval mode


def optimizer_step(model):
    with torch.enable_grad():
        cross_entropy(model(X), torch.tensor([0, 1, 2])).backward()
    torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=0.1).step()


def remember(model):
    write(model, range(20, 22))


def remember_with_ignored_rows(model):
    ids = torch.arange(20, 23)
    ignore = torch.tensor([True, False, False])
    model.remember(inputs(ids), ids % CLASSES, ids=ids, ignore=ignore)


def remember_in_inference_mode(model):
    with torch.inference_mode():
        write(model, range(20, 22))


def load_state_dict(model):
    fresh = HMA(copy.deepcopy(model.backbone), CLASSES, model.config, feature_dim=WIDTH)
    write(fresh, range(5))
    fresh.set_anchors(torch.randn(4, 5))
    model.load_state_dict(opened(fresh).state_dict())


def edit_a_weight_in_place(model):
    model.tokens.table.weight.mul_(3)


def replace_a_weight_twice(model):
    """A new tensor may be given the address of one that was freed."""
    weight = first_read(model).to_keys_values.weight
    for _ in range(2):
        weight.data = torch.randn_like(weight)


def edit_slots_in_place(model):
    model.synthetic.slots.add_(1)


def set_anchors_until_they_lie_where_the_first_lay(model):
    address = model.anchors.data_ptr()
    for features in torch.randn(1000, 4, WIDTH):
        model.set_anchors(features=features)
        if model.anchors.data_ptr() == address:
            break


def set_anchors_in_inference_mode(model):
    with torch.inference_mode():
        model.set_anchors(torch.randn(4, 5))


def reset_memory(model):
    model.reset_memory()


def to_double_and_edit(model):
    model.double()
    model.tokens.table.weight.mul_(3)
    model.float()


CHANGES = [
    optimizer_step,
    remember,
    remember_with_ignored_rows,
    remember_in_inference_mode,
    load_state_dict,
    edit_a_weight_in_place,
    replace_a_weight_twice,
    edit_slots_in_place,
    set_anchors_until_they_lie_where_the_first_lay,
    set_anchors_in_inference_mode,
    reset_memory,
    to_double_and_edit,
]


@pytest.mark.parametrize("design", READS)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@torch.no_grad()
def test_after_a_change_the_next_prediction_is_that_of_a_model_without_cache(change, design):
    model = filled(context="anchors", **READS[design])
    for _ in range(3):  # more than once, so that freed addresses come round again
        before = model(X)
        change(model)
        after = model(X)
        assert torch.equal(after, rebuilt(model)(X))
        torch.testing.assert_close(after, predict(model, model.backbone(X), "anchors"))
        if change not in (load_state_dict, reset_memory):
            assert not torch.equal(after, before)


@pytest.mark.parametrize("design", READS)
@torch.no_grad()
def test_after_a_change_of_context_the_next_prediction_is_that_of_the_new_context(design):
    model = filled(**READS[design])
    for context in (*CONTEXTS, *reversed(CONTEXTS)):
        model.context = context
        torch.testing.assert_close(model(X), predict(model, model.backbone(X), context))


@torch.no_grad()
def test_after_double_the_next_prediction_is_in_double_precision():
    model = filled()
    model(X)
    model.double()
    assert torch.equal(model(X.double()), rebuilt(model)(X.double()))
    torch.testing.assert_close(model(X.double()), predict(model, model.backbone(X.double())))


@torch.no_grad()
def test_a_model_called_with_other_weights_for_a_while_predicts_by_each_set():
    model = filled()
    for factor in (1.0, 2.0, 0.5, 2.0):
        weights = {name: factor * value for name, value in model.named_parameters()}
        other = rebuilt(model)
        other.load_state_dict(model.state_dict() | weights)
        assert torch.equal(torch.func.functional_call(model, weights, (X,)), other(X))
        del weights  # the next set may lie at the same addresses


@torch.no_grad()
def test_an_ensemble_in_one_vmap_predicts_as_its_members():
    models = [filled(seed, context="alone") for seed in range(3)]
    weights = torch.func.stack_module_state(models)

    def member(parameters, buffers):
        return torch.func.functional_call(models[0], (parameters, buffers), (X,))

    together = torch.func.vmap(member)(*weights)
    torch.testing.assert_close(together, torch.stack([model(X) for model in models]))


@pytest.mark.parametrize("anchors_in_inference_mode", [False, True])
@torch.no_grad()
def test_an_unchanged_model_projects_its_memory_once(anchors_in_inference_mode):
    model = filled()
    with torch.inference_mode(anchors_in_inference_mode):
        model.set_anchors(torch.randn(4, 5))
    rows = projections_of_memory(model)
    for _ in range(3):
        model(X)
    assert rows == [model.config.queue_size, len(X), len(X), len(X)]


@pytest.mark.parametrize("attention", ["exact", "linear"])
@torch.no_grad()
def test_one_read_of_an_unchanged_model_projects_queue_and_slots_once_and_together(attention):
    model = filled(stages="one", attention=attention)
    rows = projections_of_memory(model)
    for _ in range(3):
        model(X)
    assert rows == [model.config.queue_size + 2 * CLASSES, len(X), len(X), len(X)]


@pytest.mark.parametrize("design", READS)
@pytest.mark.parametrize("context", CONTEXTS)
def test_in_eval_mode_gradients_reach_both_memories_even_after_a_cached_prediction(context, design):
    model = filled(context=context, **READS[design])
    fresh = rebuilt(model)
    with torch.no_grad():
        model(X)
    for one in (model, fresh):
        cross_entropy(one(X), torch.tensor([0, 1, 2])).backward()
    learns = dict(fresh.named_parameters())
    for name, parameter in model.named_parameters():
        if name.startswith("momentum_encoder."):
            assert parameter.grad is None
        else:
            assert parameter.grad.abs().sum() > 0, name
            assert torch.equal(parameter.grad, learns[name].grad), name


def test_in_eval_mode_the_gradient_is_that_of_training_without_dropout():
    model = filled(dropout=0.0)
    training = rebuilt(model).train()
    for one in (model, training):
        cross_entropy(one(X), torch.tensor([0, 1, 2])).backward()
    wanted = {name: p.grad for name, p in training.named_parameters() if p.requires_grad}
    for name, gradient in wanted.items():
        torch.testing.assert_close(model.get_parameter(name).grad, gradient)


@pytest.mark.parametrize("learns", [True, False])
def test_after_inference_mode_a_gradient_still_reaches_the_input(learns):
    model = filled()
    fresh = rebuilt(model)
    for one in (model, fresh):
        one.requires_grad_(learns)
    with torch.inference_mode():
        model(X)
    gradients = []
    for one in (model, fresh):
        x = X.clone().requires_grad_()
        one(x).square().sum().backward()
        gradients.append(x.grad)
    assert torch.equal(*gradients)
    assert gradients[0].abs().sum() > 0


def test_a_model_made_in_inference_mode_predicts_as_any_other():
    wanted = filled()(X)
    with torch.inference_mode():
        model = filled()
        assert torch.equal(model(X), wanted)
    with torch.no_grad():
        assert torch.equal(model(X), wanted)


@pytest.mark.parametrize("design", READS)
@pytest.mark.parametrize("context", CONTEXTS)
def test_predicting_in_eval_mode_consumes_no_random_numbers(context, design):
    model = filled(context=context, dropout=0.5, **READS[design])
    before = torch.get_rng_state()
    model(X)
    with torch.no_grad():
        model(X)
    assert torch.equal(torch.get_rng_state(), before)


# ------------------------------------------------------------- rows that are not finite, data


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_row_that_is_not_finite_is_not_stored_and_spoils_no_prediction(bad):
    model = filled()
    expected = [*model.memory_state().ids.tolist()[2:], 50, 52]
    features = torch.ones(3, WIDTH)
    features[1, 2] = bad
    with pytest.warns(UserWarning, match="1 of 3 rows hold NaN or infinity"):
        model.remember(None, torch.tensor([0, 1, 2]), features=features, ids=torch.arange(50, 53))
    assert model.memory_state().ids.tolist() == expected
    assert torch.isfinite(model(X)).all()


def test_after_a_change_through_data_reproject_gives_the_prediction_of_the_new_weights():
    model = filled()
    with torch.no_grad():
        model(X)
        model.synthetic.slots.data.add_(3.0)  # autograd's version counter does not see this
        model.reproject()
        torch.testing.assert_close(model(X), rebuilt(model)(X), rtol=0, atol=0)
