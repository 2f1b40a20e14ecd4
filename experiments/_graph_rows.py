"""Rows that the tables on graphs share: plain, penalised, with memory, and selected on test."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from hma.data import Task
from hma.methods import Method, erm, with_memory
from hma.methods.learner import BackboneFactory
from hma.paper.rivals import (
    asap,
    ciga,
    dir_,
    drop_edge,
    drop_node,
    g_mixup,
    ib_irm,
    irm,
    layer_norm,
    manifold_mixup,
    released_hma,
    subgraph,
    vrex,
)
from hma.paper.row_answers import row_answers
from hma.paper.table import Row, memory_row
from hma.training import Recipe
from hma.vote.config import VoteConfig

from ._vote import PLAIN

BEFORE = "74bd956"
"""Last commit with ASAP and CIGA as they were measured first."""
EARLIER = {
    "ASAP": "unweighted edges between clusters, no dropout",
    "CIGAv1": "a part of the edges, alike within a class, with a linear head",
    "CIGAv2": "the same, with a loss of the rest that teaches the encoders",
}
"""What differed."""
EARLIER_NAMES = {f"{name}-earlier": name for name in EARLIER}
"""What their records say."""
WEIGHTS = (0.01, 0.1, 1.0, 10.0, 100.0)
"""Of a penalty, as the paper searched them."""
SIZES = {"queue_size": (32, 64, 96, 128), "slots_per_class": (8, 16, 32, 64)}
"""Of the memories, as the paper searched them on graphs with batches of 32."""
BATCH = 32
"""Of CIGA's code, for the tables that are out of distribution."""
CIGA = Recipe(
    epochs=400,
    batch_size=BATCH,
    eval_batch_size=BATCH,
    lr=1e-3,
    clip_norm=1.0,
    patience=5,
    patience_from=20,
)
"""How these tables train."""
Setting = Any
"""A value, or a value for each task: a mapping from its name."""


def by_task(make: Callable[..., Method]) -> Callable[..., Method]:
    """Return how to build a row of which some settings are mappings from a task's name."""

    def build(backbone: BackboneFactory, **settings: Setting) -> Method:
        def method(task: Task, seed: int) -> Any:
            own = {
                name: value[task.name] if isinstance(value, Mapping) else value
                for name, value in settings.items()
            }
            return make(backbone, **own)(task, seed)

        return method

    return build


def plain_rows(batch: int, name: str = "ERM") -> dict[str, Row]:
    """Return the backbone with a linear head, and with a LayerNorm between.

    Args:
        batch: Rows of an evaluation.
        name: Of the first row.
    """
    measure = partial(row_answers, batch_size=batch)
    return {
        name: Row(build=erm, what="the backbone and a linear head", measure=measure),
        "LayerNorm": Row(
            build=layer_norm, what="the same with a LayerNorm before the head", measure=measure
        ),
    }


def memory_rows(batch: int, **sizes: Setting) -> dict[str, Row]:
    """Return the rows of the paper's memories, and of the one that is the library's default.

    Args:
        batch: Rows of a training step and of an evaluation, and anchors.
        sizes: Fields of :class:`hma.HMAConfig` for the paper's.
    """
    measure = partial(row_answers, batch_size=batch)
    names = {"PARAM": "param", "RMA": "rma", "ABD": "abd", "ABD+SYN": "abd+syn", "HMA": "hma"}
    found = {}
    for name, ablation in names.items():
        row = memory_row(ablation, search=SIZES, measure=measure, anchors=batch, **sizes)
        assert row.build is not None
        found[name] = replace(row, build=by_task(row.build))
    found["VotingMemory"] = Row(
        build=_voting,
        settings={"config": asdict(PLAIN)},
        what="the library's default memory: nearest stored rows answer beside the head",
        measure=measure,
    )
    return found


def released_row(batch: int, *, contrast: Setting, stores: Setting, **sizes: Setting) -> Row:
    """Return the module that the paper's authors released for graphs, with all of its choices.

    Args:
        batch: Rows of an evaluation.
        contrast: What the contrast of its commands counts.
        stores: Whether its commands ever fill the queue.
        sizes: Of its memories, as in its commands.
    """
    return Row(
        build=by_task(released_hma),
        settings={"contrast": contrast, "stores": stores, **sizes},
        what="the authors' released module with all its choices; they test in file order",
        measure=partial(row_answers, batch_size=batch),
    )


def penalty_rows(batch: int, weights: Mapping[str, Setting]) -> dict[str, Row]:
    """Return IRM, V-REx and IB-IRM; the tasks have environments, such as random halves.

    Args:
        batch: Rows of an evaluation.
        weights: Of each row's penalty.
    """
    measure = partial(row_answers, batch_size=batch)
    kinds: dict[str, tuple[Callable[..., Method], dict[str, Setting], str]] = {
        "IRM": (irm, {}, "gradient penalty for each environment"),
        "V-REx": (vrex, {}, "variance of the environments' risks"),
        # in CIGA's code the variance of the features counts once, whatever the weight
        "IB-IRM": (ib_irm, {"bottleneck": 1.0}, "IRM and the variance of the features"),
    }
    return {
        name: Row(
            build=by_task(partial(_around, penalty)),
            settings={"weight": weights[name], **more},
            search={"weight": WEIGHTS},
            what=what,
            measure=measure,
        )
        for name, (penalty, more, what) in kinds.items()
    }


def subgraph_rows(
    batch: int,
    *,
    share: Setting,
    reads: Setting,
    contrast: Mapping[str, Setting],
    spurious: Setting,
    contrasts: Setting,
    dropout: float,
) -> dict[str, Row]:
    """Return ASAP, DIR and CIGA, which predict from a part of each graph, and how they were before.

    Args:
        batch: Rows of an evaluation.
        share: What is kept of a graph; ASAP and DIR have CIGA's.
        reads: What the second network of DIR and CIGA reads, ``"hidden"`` or ``"raw"``.
        contrast: What the contrast counts in CIGAv1 and in CIGAv2.
        spurious: What the risk of the rest counts in CIGAv2.
        contrasts: What CIGA's code contrasts, ``"predicted"`` or ``"chosen"``.
        dropout: Of the attention inside ASAP's clusters, as in the networks.
    """
    part = {"share": share, "reads": reads}
    first = {**part, "contrast": contrast["CIGAv1"], "head": "hidden"}
    second = {**part, "contrast": contrast["CIGAv2"], "spurious": spurious, "head": "hidden"}
    kinds: dict[str, tuple[Callable[..., Method], dict[str, Setting], str]] = {
        "ASAP": (
            asap,
            {"share": share, "dropout": dropout},
            "graphs pooled to clusters of their nodes",
        ),
        "DIR": (dir_, part, "a part of the edges that predicts alike whatever it is beside"),
        "CIGAv1": (ciga, first, "a part of the edges, alike within a class"),
        "CIGAv2": (ciga, second, "the same, with a loss of the rest"),
        "CIGAv1-released": (
            ciga,
            {**first, "contrasts": contrasts},
            "as CIGAv1, contrasting what the released commands contrast",
        ),
        "CIGAv2-released": (
            ciga,
            {**second, "contrasts": contrasts, "drift": True},
            "as CIGAv2 and so, and the rest moves BatchNorm's statistics, as in the released code",
        ),
    }
    rows = {
        name: Row(
            build=by_task(make),
            settings=settings,
            what=what,
            measure=partial(row_answers, batch_size=batch),
        )
        for name, (make, settings, what) in kinds.items()
    }
    before = {
        "ASAP": {"share": share},
        "CIGAv1": {**part, "contrast": contrast["CIGAv1"]},
        "CIGAv2": {**part, "contrast": contrast["CIGAv2"], "spurious": spurious},
    }
    return rows | earlier_rows(before)


def earlier_rows(settings: Mapping[str, Mapping[str, Setting]]) -> dict[str, Row]:
    """Return ASAP and CIGA as they were before they had what their authors' code has.

    Args:
        settings: Name of the row of today -> what its earlier records hold.
    """
    return {
        f"{name}-earlier": Row(retired=BEFORE, settings=held, what=EARLIER[name], instead_of=name)
        for name, held in settings.items()
    }


def augmentation_rows(batch: int) -> dict[str, Row]:
    """Return the augmentations of graphs and of features, each around the plain backbone.

    Args:
        batch: Rows of an evaluation.
    """
    kinds: dict[str, tuple[Callable[..., Method], dict[str, Setting], str]] = {
        "DropEdge": (drop_edge, {"share": 0.2}, "a fifth of the edges left out, others each time"),
        "DropEdge-degrees": (
            drop_edge,
            {"share": 0.2, "degrees": "kept"},
            "the same, nodes keep the degrees of the whole graph as features",
        ),
        "DropNode": (drop_node, {"share": 0.2}, "a fifth of the nodes left out"),
        "Subgraph": (subgraph, {"share": 0.2}, "a connected part of four fifths of the nodes"),
        "Manifold-Mixup": (manifold_mixup, {"alpha": 1.0}, "features between those of two graphs"),
        "G-Mixup": (
            g_mixup,
            {"share": 0.15, "groups": 10, "mixing": [0.005, 0.01]},
            "new graphs between the graphons of two classes",
        ),
    }
    return {
        name: Row(
            build=partial(_around, make),
            settings=settings,
            what=what,
            measure=partial(row_answers, batch_size=batch),
        )
        for name, (make, settings, what) in kinds.items()
    }


def on_network(row: Row, network: Mapping[str, Any]) -> Row:
    """Return a row whose backbone is built with arguments of its own, which records hold.

    Args:
        row: Of any method.
        network: Keywords of the column's backbone.
    """
    assert row.build is not None
    build = partial(_networked, row.build, tuple(network))
    return replace(row, build=build, settings={**network, **row.settings})


def _networked(
    build: Callable[..., Method],
    names: tuple[str, ...],
    backbone: Callable[..., Any],
    **settings: Any,
) -> Method:
    own = {name: settings.pop(name) for name in names}
    return build(partial(backbone, **own), **settings)


def oracle(row: Row) -> Row:
    """Return a row that selects its epoch on the test rows: what no honest row can reach."""
    return replace(row, task=selected_on_test, what=f"{row.what}; epoch selected on test")


def selected_on_test(task: Task, seed: int) -> Task:
    """Return a task that validates on its test rows; for rows that say so in their name."""
    (split,) = task.tests.values()
    return replace(task, validation=split, facts={**task.facts, "validation": "the test rows"})


def _around(make: Callable[..., Method], backbone: BackboneFactory, **settings: Any) -> Method:
    """Return a method around the plain backbone."""
    return make(erm(backbone), **settings)


def _voting(backbone: BackboneFactory, *, config: dict[str, Any]) -> Method:
    return with_memory(backbone, VoteConfig.from_dict(config))
