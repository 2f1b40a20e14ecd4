"""Compiled and exported programs give what the eager model gives, in one graph."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from read_designs import READS, opened
from torch import nn
from torch._dynamo.testing import CompileCounter
from torch.export import Dim
from torch.nn.functional import cross_entropy

from benchmarks.reference import predict
from hma import HMA, HMAConfig

WIDTH, CLASSES, QUEUE = 8, 3, 6
SLOTS = 2 * CLASSES
ROWS = ("rma", "abd", "abd+syn", "abd+rma", "hma", "param")
X = torch.sin(torch.arange(15.0)).view(3, 5)
Y = torch.tensor([0, 1, 2])


@pytest.fixture(autouse=True)
def _forget_compiled_code():
    torch._dynamo.reset()


def build(**changes):
    torch.manual_seed(0)
    sizes = {"label_dim": 4, "queue_size": QUEUE, "slots_per_class": 2, "num_heads": 2}
    backbone = nn.Sequential(nn.Linear(5, WIDTH), nn.Tanh())
    return opened(HMA(backbone, CLASSES, HMAConfig(**sizes | changes), feature_dim=WIDTH))


def filled(**changes):
    """A model in eval mode whose queue has one place left and that has anchors."""
    model = build(**changes)
    write(model, QUEUE - 1)
    model.set_anchors(torch.randn(4, 5))
    return model.eval()


def write(model, count):
    model.remember(torch.randn(count, 5), torch.arange(count) % CLASSES)


def gradients(model):
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


# ------------------------------------------------------------------------- compile


@pytest.mark.parametrize("design", ["paper", "all"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("training", [True, False])
def test_compiled_logits_and_gradients_are_those_of_the_eager_model(backend, training, design):
    model = filled(dropout=0.0, **READS[design]).train(training)
    cross_entropy(model(X), Y).backward()
    logits, wanted = model(X), gradients(model)
    model.zero_grad()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    torch.testing.assert_close(compiled(X), logits)
    cross_entropy(compiled(X), Y).backward()
    found = gradients(model)
    assert found.keys() == wanted.keys()
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, wanted[name])


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("training", [True, False])
def test_every_ablation_compiles_to_one_graph(row, training):
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Linear(5, WIDTH), nn.Tanh())
    config = HMAConfig.ablation(row, num_heads=2, dropout=0.0)
    model = HMA(backbone, CLASSES, config, feature_dim=WIDTH).train(training)
    write(model, 4)
    counter = CompileCounter()
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    torch.testing.assert_close(compiled(X), predict(model, model.backbone(X)))
    assert counter.frame_count == 1


@pytest.mark.parametrize("design", ["paper", "all"])
@pytest.mark.parametrize("training", [True, False])
def test_the_compiled_forward_sees_every_new_row_without_compiling_again(training, design):
    model = build(dropout=0.0, **READS[design]).train(training)
    counter = CompileCounter()
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    seen = []
    for count in (0, 1, QUEUE - 2, 1, 1, 2 * QUEUE):  # empty, part, full, past full, laps
        write(model, count)
        with torch.no_grad():
            seen.append(compiled(X))
        torch.testing.assert_close(seen[-1], predict(model, model.backbone(X)))
    assert all(not torch.equal(a, b) for a, b in pairwise(seen))
    assert counter.frame_count == 1


def test_a_compiled_forward_of_dynamic_batch_compiles_once_for_all_sizes():
    model, counter = filled(), CompileCounter()
    compiled = torch.compile(model, backend=counter, fullgraph=True, dynamic=True)
    for count in (2, 3, 8, 5):
        x = torch.randn(count, 5)
        torch.testing.assert_close(compiled(x), predict(model, model.backbone(x)))
    assert counter.frame_count == 1


@pytest.mark.parametrize("design", ["paper", "all"])
@pytest.mark.parametrize("context", ["batch", "alone", "anchors"])
@torch.no_grad()
def test_a_compiled_frozen_model_predicts_by_its_memory_in_every_context(context, design):
    model = filled(**READS[design])
    model.freeze_memory()
    model.context = context
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(X), predict(model, model.backbone(X), context))
    model.freeze_memory(False)
    write(model, 3)
    torch.testing.assert_close(compiled(X), predict(model, model.backbone(X), context))


@pytest.mark.parametrize("design", ["paper", "all"])
@torch.no_grad()
def test_a_frozen_model_compiles_for_float32_after_it_predicted_under_autocast(design):
    model = filled(**READS[design])
    model.freeze_memory()
    with torch.autocast("cpu", torch.bfloat16):
        model(X)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(X), predict(model, model.backbone(X)))


@torch.no_grad()
def test_anchors_set_after_freezing_are_those_of_the_compiled_model():
    model = filled(context="anchors")
    model.freeze_memory()
    model.set_anchors(torch.randn(2, 5))
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(X), predict(model, model.backbone(X), "anchors"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
@pytest.mark.parametrize("design", ["paper", "all"])
def test_inductor_predicts_and_learns_as_the_eager_model(design):
    model = filled(dropout=0.0, **READS[design]).train()
    cross_entropy(model(X), Y).backward()
    wanted = gradients(model)
    model.zero_grad()
    logits = torch.compile(model, backend="inductor", fullgraph=True)(X)
    cross_entropy(logits, Y).backward()
    torch.testing.assert_close(logits, predict(model, model.backbone(X)))
    found = gradients(model)
    assert found.keys() == wanted.keys()
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, wanted[name])


# -------------------------------------------------------------------------- export


def exported(model):
    return torch.export.export(model, (X,), dynamic_shapes={"x": {0: Dim.DYNAMIC}})


def rows_projected(program):
    """Sizes of what goes through a layer of keys and values; None for the batch."""
    sizes = []
    for node in program.graph.nodes:
        if node.target is torch.ops.aten.linear.default and "to_keys_values" in str(node.args[1]):
            count = node.args[0].meta["val"].shape[0]
            sizes.append(count if isinstance(count, int) else None)
    return sizes


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("context", ["batch", "alone", "anchors"])
def test_an_exported_model_predicts_as_the_eager_one_for_every_batch_size(context, frozen):
    model = filled(context=context)
    model.freeze_memory(frozen)
    program = exported(model).module()
    for count in (1, 2, 3, 8):
        x = torch.randn(count, 5)
        torch.testing.assert_close(program(x), predict(model, model.backbone(x), context))


def freeze_in_eval_mode(model):
    model.freeze_memory()


def freeze_in_training_mode(model):
    model.train()
    model.freeze_memory()
    model.eval()


def freeze_then_change_context(model):
    context, model.context = model.context, "batch"
    model.freeze_memory()
    model.context = context


def freeze_then_convert(model):
    model.double()
    model.freeze_memory()
    model.float()


@pytest.mark.parametrize(
    "freeze",
    [freeze_in_eval_mode, freeze_in_training_mode, freeze_then_change_context, freeze_then_convert],
    ids=lambda freeze: freeze.__name__,
)
def test_the_exported_program_of_a_frozen_model_projects_nothing_but_the_batch(freeze):
    model = filled(context="anchors")
    freeze(model)
    program = exported(model)
    assert rows_projected(program) == [None, None]
    wanted = predict(model, model.backbone(X), "anchors")
    torch.testing.assert_close(program.module()(X), wanted)


@pytest.mark.parametrize("attention", ["exact", "linear"])
def test_the_exported_program_of_one_frozen_read_projects_nothing_but_the_batch(attention):
    model = filled(context="anchors", stages="one", attention=attention)
    model.freeze_memory()
    program = exported(model)
    assert rows_projected(program) == [None]
    for count in (1, 3, 8):
        x = torch.randn(count, 5)
        wanted = predict(model, model.backbone(x), "anchors")
        torch.testing.assert_close(program.module()(x), wanted)


def test_the_exported_program_of_a_model_that_still_writes_projects_its_memory():
    sizes = rows_projected(exported(filled(context="alone")))
    assert sorted(sizes, key=str) == [QUEUE, SLOTS, None, None]


# ---------------------------------------------------------------------------- ONNX


@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec.. is deprecated:FutureWarning")
@pytest.mark.parametrize("context", ["alone", "anchors"])
def test_onnxruntime_predicts_as_the_eager_model_for_every_batch_size(tmp_path, context):
    pytest.importorskip("onnxscript", reason="pip install 'hma-torch[export]'")
    onnxruntime = pytest.importorskip("onnxruntime", reason="pip install 'hma-torch[export]'")
    model = filled(context=context)
    model.freeze_memory()
    shapes = {"x": {0: Dim.DYNAMIC}}
    program = torch.onnx.export(model, (X,), dynamo=True, dynamic_shapes=shapes, verbose=False)
    program.save(tmp_path / "model.onnx")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", options)
    for count in (1, 3, 8):
        x = torch.randn(count, 5)
        (logits,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        wanted = predict(model, model.backbone(x), context).numpy()
        np.testing.assert_allclose(logits, wanted, rtol=0, atol=1e-5)
