"""BatchFormer and attention between datapoints: who sees whom, in training and at test."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy
from training_cases import EVERYTHING, Noisy, Plain, quietly, small_task

from hma.attention.config import HMAConfig
from hma.attention.hma import HMA
from hma.errors import UserError
from hma.methods import erm
from hma.paper.rivals import batchformer, irm, npt, random_environments

SHORT = replace(EVERYTHING, epochs=10, patience=None, balance="none")


def plain(task):
    return Plain(task.shape[0])


def first_batch(task, count: int = 12):
    return task.train.batch(torch.arange(count))


# ------------------------------------------------------------------------------- BatchFormer


def test_batchformer_at_test_is_the_plain_classifier():
    task = small_task()
    learner = batchformer(plain)(task, 0)
    quietly(learner, task, SHORT)
    classifier = erm(plain)(task, 1).module.eval()
    state = learner.module.state_dict()
    classifier.load_state_dict({n: v for n, v in state.items() if not n.startswith("encoder.")})
    batch = first_batch(task)
    with torch.no_grad():
        assert torch.equal(learner.predict(batch), classifier(batch.x))


def test_the_encoder_of_batchformer_is_not_called_at_test():
    task = small_task()
    learner = batchformer(plain)(task, 0)
    calls = []
    learner.module.encoder.register_forward_hook(lambda *_: calls.append(1))
    learner.module.eval()
    learner.predict(first_batch(task))
    assert calls == []
    learner.module.train()
    learner.loss(first_batch(task))
    assert calls == [1]


@pytest.mark.parametrize("weighted", [False, True])
def test_the_loss_of_batchformer_is_the_mean_of_both_streams(weighted):
    task = small_task()
    learner = batchformer(plain, dropout=0.0)(task, 0)
    batch = first_batch(task)
    weight = torch.rand(len(batch.y)) if weighted else torch.ones(len(batch.y))
    batch = batch._replace(weight=weight if weighted else None)
    module = learner.module
    features = module.backbone(batch.x)
    streams = [module.head(features), module.head(attended_by_hand(module.encoder, features))]
    expected = torch.stack(
        [
            (cross_entropy(logits, batch.y, reduction="none") * weight).sum() / weight.sum()
            for logits in streams
        ]
    ).mean()
    torch.testing.assert_close(learner.loss(batch), expected)


def attended_by_hand(layer, rows):
    """One encoder layer, post-norm, row by row and head by head."""
    width = rows.shape[1]
    q, k, v = (rows @ layer.self_attn.in_proj_weight.T + layer.self_attn.in_proj_bias).chunk(3, 1)
    size = width // layer.self_attn.num_heads
    mixed = torch.empty_like(rows)
    for start in range(0, width, size):
        part = slice(start, start + size)
        for row in range(len(rows)):
            scores = torch.stack([q[row, part] @ key for key in k[:, part]]) / size**0.5
            mixed[row, part] = scores.softmax(dim=0) @ v[:, part]
    hidden = layer.norm1(rows + layer.self_attn.out_proj(mixed))
    return layer.norm2(hidden + layer.linear2(layer.linear1(hidden).relu()))


def test_both_streams_of_batchformer_train_the_same_head_and_backbone():
    task = small_task()
    learner = batchformer(plain)(task, 0)
    learner.loss(first_batch(task)).backward()
    assert all(parameter.grad is not None for parameter in learner.module.parameters())


def test_batchformer_has_the_sizes_of_its_paper():
    layer = batchformer(plain)(small_task(), 0).module.encoder
    assert layer.self_attn.num_heads == 4
    assert (layer.linear1.in_features, layer.linear1.out_features) == (16, 16)
    assert layer.dropout.p == 0.5


def test_a_penalty_around_batchformer_is_refused():
    task = random_environments(small_task())
    with pytest.raises(UserError, match="24 for 12 from WithBatchFormer"):
        irm(batchformer(plain), weight=1.0)(task, 0).loss(first_batch(task))


# ------------------------------------------------------------------------------------- NPT


def perturbed(batch):
    x = batch.x.clone()
    x[1:] += torch.randn_like(x[1:])
    return batch._replace(x=x)


def test_alone_a_prediction_does_not_depend_on_its_neighbours():
    task = small_task()
    learner = npt(plain)(task, 0)
    learner.module.eval()
    batch = first_batch(task)
    learner.use("alone")
    torch.testing.assert_close(
        learner.predict(batch)[0], learner.predict(perturbed(batch))[0], rtol=0, atol=0
    )
    each = torch.cat(
        [learner.predict(task.train.batch(torch.tensor([place]))) for place in range(12)]
    )
    torch.testing.assert_close(learner.predict(batch), each)


@pytest.mark.parametrize("context", ["batch", "batch-sorted"])
def test_in_a_batch_a_prediction_depends_on_its_neighbours(context):
    task = small_task()
    learner = npt(plain)(task, 0)
    learner.module.eval()
    learner.use("alone")
    learner.use(context)
    batch = first_batch(task)
    found = learner.predict(batch)
    assert not torch.allclose(found[0], learner.predict(perturbed(batch))[0])
    turned = batch._replace(x=batch.x.flip(0))
    torch.testing.assert_close(learner.predict(turned).flip(0), found)


def test_in_training_rows_see_their_batch_whatever_the_context():
    task = small_task()
    learner = npt(plain, dropout=0.0)(task, 0)
    learner.module.train()
    learner.use("alone")
    batch = first_batch(task)
    assert not torch.allclose(learner.predict(batch)[0], learner.predict(perturbed(batch))[0])


def test_labels_never_reach_a_prediction():
    task = small_task()
    learner = npt(plain)(task, 0)
    learner.module.eval()
    batch = first_batch(task)
    other = batch._replace(y=(batch.y + 1) % 3)
    assert torch.equal(learner.predict(batch), learner.predict(other))


@pytest.mark.parametrize("context", ["batch", "alone"])
def test_one_block_is_the_attention_between_datapoints_of_hma(context):
    task = small_task()
    learner = npt(plain, depth=1, label_dim=8, num_heads=2)(task, 0)
    ours = learner.module.eval()
    config = HMAConfig.ablation("abd", label_dim=8, num_heads=2, empty_reads="skip")
    theirs = HMA(plain(task), 3, config).eval()
    theirs.backbone.load_state_dict(ours.backbone.state_dict())
    theirs.synthetic.read.load_state_dict(ours.blocks[0].state_dict())
    theirs.head.load_state_dict(ours.head.state_dict())
    with torch.no_grad():
        theirs.tokens.table.weight[-1] = ours.tokens.table.weight[-1]
        theirs.context = context
        learner.use(context)
        batch = first_batch(task)
        torch.testing.assert_close(theirs(batch.x), learner.predict(batch))


# ------------------------------------------------------------------------------------- both


@pytest.mark.parametrize("make", [batchformer, npt])
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_it_learns_and_repeats(make, precision):
    task, recipe = small_task(), replace(SHORT, precision=precision)
    runs = [quietly(make(lambda task: Noisy(6))(task, 0), task, recipe) for _ in range(2)]
    assert runs[0].repeatable() == runs[1].repeatable()
    assert all(score["accuracy"] > 0.55 for score in runs[0].tests["near"].values())


def test_npt_is_scored_in_all_three_contexts():
    task = small_task()
    record = quietly(npt(plain)(task, 0), task, replace(SHORT, epochs=1))
    assert list(record.tests["near"]) == ["batch", "batch-sorted", "alone"]


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (batchformer, {"num_heads": 0}, "num_heads must be a whole number of at least 1, got 0"),
        (batchformer, {"num_heads": 3}, "num_heads must divide .* got 3 and 16"),
        (batchformer, {"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        (npt, {"depth": 0}, "depth must be a whole number of at least 1, got 0"),
        (npt, {"label_dim": -1}, "label_dim must be a whole number of at least 0, got -1"),
        (npt, {"num_heads": 5}, r"got 5 and 16 \+ 32 = 48; label_dim=34 would fit"),
        (npt, {"dropout": -0.1}, "dropout must be at least 0 and below 1, got -0.1"),
    ],
)
def test_wrong_options_are_named(make, options, message):
    with pytest.raises(UserError, match=message):
        make(plain, **options)(small_task(), 0)
