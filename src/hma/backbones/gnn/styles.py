"""The graph networks of three published codes, ready for a task."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, get_args

from hma.backbones.gnn.codes import features_of
from hma.backbones.gnn.encoder import GraphEncoder
from hma.backbones.gnn.kinds import GCN, GIN
from hma.backbones.named_backbone import Described
from hma.errors import wrong_choice

Style = Literal["g-mixup", "ogb", "ciga"]
Network = TypeVar("Network", bound=GraphEncoder)
STYLES: Mapping[Style, Mapping[str, Any]] = {
    "g-mixup": {"width": 64, "num_layers": 5, "order": "relu-norm", "project": True},
    "ogb": {
        "width": 300, "num_layers": 5, "order": "norm-relu", "dropout": 0.5, "layers": "ogb",
    },
    "ciga": {
        "width": 32, "num_layers": 3, "order": "norm-relu", "dropout": 0.3, "layers": "ogb",
    },
}  # fmt: skip
"""Arguments of a :class:`GraphEncoder` for each."""


def gin(style: Style = "g-mixup", **changes: Any) -> Callable[[Described], GIN]:
    """Return a function that builds the GIN of a published code for a task.

    Args:
        style: ``"g-mixup"`` (ahxt/g-mixup), ``"ogb"`` (OGB's example for molecules, with learned
            vectors of atoms and bonds where a task has codes) or ``"ciga"`` (LFhase/CIGA: OGB's
            layers after a linear layer of the node features, sized for TU data).
        changes: Arguments of :class:`GraphEncoder` that differ, such as ``virtual_node=True``.

    Example:
        >>> from types import SimpleNamespace
        >>> task = SimpleNamespace(name="PROTEINS", kind="graph", shape=(3,))
        >>> gin("ciga", pool="max")(task).feature_dim
        32
    """
    return _styled(GIN, style, changes)


def gcn(style: Style = "g-mixup", **changes: Any) -> Callable[[Described], GCN]:
    """Return a function that builds a GCN for a task; arguments as :func:`gin`."""
    return _styled(GCN, style, changes)


def _styled(
    kind: type[Network], style: Style, changes: Mapping[str, Any]
) -> Callable[[Described], Network]:
    if style not in STYLES:
        raise ValueError(wrong_choice("style", style, get_args(Style)))
    options = {**STYLES[style], **changes}

    def build(task: Described) -> Network:
        nodes, edges = features_of(task.shape)
        return kind(nodes, **{"edge_features": edges, **options})

    return build
