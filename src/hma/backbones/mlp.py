"""Multilayer perceptrons: of plain inputs, and of tables with each number cut into bins."""

import copy
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from hma.backbones.named_backbone import BackboneRequest, NamedBackbone
from hma.checks import expect_shape

MOST_BINS = 16
"""Bins of a column."""
MOST_BINS_IN_ALL = 512
"""Bins of all columns together, and no more than there are training rows: a wide table with few
rows, such as musk (166 columns), learns its bins by heart otherwise."""
MOST_ROWS = 50_000
"""Training rows that edges are taken from."""
FARTHEST = 8.0
"""Standard deviations from the mean beyond which a number is no farther."""
STEEPEST = 1e30
"""Largest slope within a bin: edges may be as close as two numbers can be."""


class MLP(nn.Module):
    """Flatten the input and pass it through ``Linear``, ``ReLU``, ``Dropout`` per hidden layer.

    The last hidden activation is the feature. Weights start Xavier uniform and biases at zero,
    as in IRM's Colored MNIST experiment.

    Args:
        in_features: Number of values in one flattened sample.
        hidden: Widths of the hidden layers; the last one is ``F``.
        dropout: Share of each hidden activation dropped in training.

    Shape:
        - input: ``(B, ...)`` with ``in_features`` values per sample.
        - output: ``(B, F)``.

    Example:
        >>> import torch
        >>> backbone = MLP(in_features=2 * 14 * 14, hidden=(256, 256))
        >>> backbone(torch.rand(5, 2, 14, 14)).shape
        torch.Size([5, 256])
    """

    def __init__(
        self, in_features: int, hidden: Sequence[int] = (256, 256), dropout: float = 0.0
    ) -> None:
        super().__init__()
        expect_layers(in_features, hidden, dropout)
        self.in_features = in_features
        self.feature_dim = hidden[-1]
        self.layers = nn.Sequential()
        for width_in, width_out in zip((in_features, *hidden), hidden, strict=False):
            linear = nn.Linear(width_in, width_out)
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)
            self.layers.extend([linear, nn.ReLU(), nn.Dropout(dropout)])

    def key_view(self) -> "InputView":
        """Return a view of the inputs, for the keys of a memory."""
        return InputView(self.in_features)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the last hidden activation of each sample."""
        values = math.prod(inputs.shape[1:])
        if inputs.dim() < 2 or values != self.in_features:
            raise ValueError(
                f"inputs must hold {self.in_features} values per sample, got shape "
                f"{tuple(inputs.shape)}; build the MLP with in_features equal to the product of "
                "all axes after the first"
            )
        flat = inputs.flatten(start_dim=1)  # (B, ...) -> (B, in_features)
        features: Tensor = self.layers(flat)  # (B, in_features) -> (B, F)
        return features


class InputView(nn.Flatten):
    """Samples as they are, flattened.

    Args:
        width: Number of values in one flattened sample.

    Shape:
        - input: ``(B, ...)``; output: ``(B, width)``.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.feature_dim = width


def expect_layers(in_features: int, hidden: Sequence[int], dropout: float) -> None:
    """Raise unless a multilayer perceptron of these sizes can be built."""
    if in_features < 1:
        raise ValueError(f"in_features must be at least 1, got {in_features}")
    if len(hidden) == 0 or min(hidden) < 1:
        raise ValueError(f"hidden must be one or more widths of at least 1, got {hidden}")
    if not 0.0 <= dropout < 1.0:
        raise ValueError(f"dropout must be at least 0 and below 1, got {dropout}")


mlp = MLP
"""The name that users write; by default the network of IRM's Colored MNIST."""


class PiecewiseLinear(nn.Module):
    r"""Encode each number as itself and how far it has come through each bin of its column.

    .. math:: e_b(x) = \mathrm{clip}\left(\frac{x - t_{b-1}}{t_b - t_{b-1}}, 0, 1\right)

    as Gorishniy et al. (2022, arXiv 2203.05556) do; edges ``t`` are quantiles of training rows. A
    number outside of them goes on in the first bin to -1 and in the last to 2, and the number
    itself to 8 standard deviations: Shuttle has rows far beyond, which would rule a linear layer.
    A column with no more than two values stays as it is, and so do all before :meth:`fit`.

    Everything is a buffer of a size that the number of columns decides, so a fresh module takes
    the state of any other for as many columns.

    Args:
        columns: Number of input columns, ``K``.

    Shape:
        - input: ``(B, K)``.
        - output: ``(B, K + used)``: the values, then the bins that are used, column by column.

    Example:
        >>> encode = PiecewiseLinear(columns=1)
        >>> encode.fit(torch.tensor([0.0, 1.0, 1.0, 3.0])[:, None].repeat(8, 1))
        >>> encode(torch.tensor([[0.5], [2.0]])).tolist()
        [[0.5, 0.5, 0.0], [2.0, 1.0, 0.5]]
    """

    lowest: Tensor
    highest: Tensor
    column: Tensor
    start: Tensor
    slope: Tensor
    least: Tensor
    most: Tensor

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.columns = columns
        self.room = min(MOST_BINS * columns, MOST_BINS_IN_ALL)
        self.used = 0
        self.register_buffer("lowest", torch.full((columns,), -math.inf))
        self.register_buffer("highest", torch.full((columns,), math.inf))
        self.register_buffer("column", torch.zeros(self.room, dtype=torch.long))
        for name in ("start", "slope", "least", "most"):
            self.register_buffer(name, torch.zeros(self.room))

    @torch.no_grad()
    def fit(self, rows: Tensor) -> None:
        """Take the edges of the bins from training rows ``(N, K)``, one or more."""
        expect_shape("rows", rows, None, self.columns)
        ordered = rows.double().cpu().sort(dim=0).values  # (N, K)
        several = (ordered.diff(dim=0) > 0).sum(dim=0) > 1  # (K,)
        deviation, mean = torch.std_mean(ordered, dim=0, correction=0)
        self.lowest.copy_(torch.where(several, mean - FARTHEST * deviation, -math.inf))
        self.highest.copy_(torch.where(several, mean + FARTHEST * deviation, math.inf))
        most = min(self.room, len(rows))
        edges = _edges(ordered, several.nonzero().flatten().tolist(), most)
        for buffer in (self.column, self.start, self.slope, self.least, self.most):
            buffer.zero_()
        self.used = 0
        for column, each in edges.items():
            place = slice(self.used, self.used + len(each) - 1)
            self.column[place] = column
            self.start[place] = each[:-1]
            self.slope[place] = (1 / each.diff()).clamp(max=STEEPEST)
            self.most[place] = 1.0
            self.least[place.start] = -1.0
            self.most[place.stop - 1] = 2.0
            self.used = place.stop

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the values and how far each has come through its bins."""
        expect_shape("inputs", inputs, None, self.columns)
        values = inputs.clamp(self.lowest, self.highest)
        bins = slice(self.used)
        into = (inputs[:, self.column[bins]] - self.start[bins]) * self.slope[bins]  # (B, used)
        return torch.cat([values, into.clamp(self.least[bins], self.most[bins])], dim=1)

    def _load_from_state_dict(self, state: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        super()._load_from_state_dict(state, prefix, *rest)
        self.used = int(self.slope.count_nonzero())

    def extra_repr(self) -> str:
        """Say how many bins there are."""
        return f"columns={self.columns}, used={self.used} of {self.room}"


def _edges(ordered: Tensor, columns: list[int], most: int) -> dict[int, Tensor]:
    """Return the edges of each column that has some, with no more bins in all than ``most``."""
    for bins in range(MOST_BINS, 1, -1):
        place = torch.linspace(0, 1, bins + 1, dtype=ordered.dtype) * (len(ordered) - 1)
        quantiles = ordered[place.round().long()]  # (bins + 1, K)
        edges = {column: torch.unique(quantiles[:, column]) for column in columns}
        edges = {column: each for column, each in edges.items() if len(each) > 2}
        if sum(len(each) - 1 for each in edges.values()) <= most:
            return edges
    return {}


class BinnedMLP(nn.Module):
    """Encode a row of a table by :class:`PiecewiseLinear`, then ``Linear``, ``ReLU``, ``Dropout``.

    The last hidden activation is the feature. Weights start Xavier uniform and biases at zero.
    Before :meth:`fit` it is a multilayer perceptron of the columns as they are.

    Args:
        in_features: Number of values in a row, ``K``.
        hidden: Widths of the hidden layers; the last one is ``F``.
        dropout: Share of each hidden activation dropped in training.

    Shape:
        - input: ``(B, K)``; output: ``(B, F)``.

    Example:
        >>> backbone = BinnedMLP(in_features=4, hidden=(32, 16))
        >>> backbone.fit(torch.rand(100, 4))
        >>> backbone(torch.rand(5, 4)).shape
        torch.Size([5, 16])
    """

    def __init__(
        self, in_features: int, hidden: Sequence[int] = (128, 128), dropout: float = 0.1
    ) -> None:
        super().__init__()
        expect_layers(in_features, hidden, dropout)
        self.feature_dim = hidden[-1]
        self.encode = PiecewiseLinear(in_features)
        self.first = nn.Linear(in_features + self.encode.room, hidden[0])
        self.rest = nn.Sequential(nn.ReLU(), nn.Dropout(dropout))
        for width_in, width_out in pairwise(hidden):
            self.rest.extend([nn.Linear(width_in, width_out), nn.ReLU(), nn.Dropout(dropout)])
        self._start()

    def fit(self, rows: Tensor) -> None:
        """Take the edges of the bins from training rows ``(N, K)``, and reset the weights."""
        self.encode.fit(rows)
        self._start()

    @torch.no_grad()
    def _start(self) -> None:
        """Initialise the weights as if the first layer had only the inputs that are used."""
        for layer in (self.first, *self.rest):
            if isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
                nn.init.zeros_(layer.bias)
        used = self.encode.columns + self.encode.used
        weight = nn.init.xavier_uniform_(self.first.weight.new_empty(len(self.first.weight), used))
        self.first.weight.zero_()[:, :used] = weight

    def key_view(self) -> "BinnedView":
        """Return a view of the encoded columns, for the keys of a memory."""
        return BinnedView(copy.deepcopy(self.encode))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the last hidden activation of each row."""
        values = self.encode(inputs)  # (B, K) -> (B, K + used)
        weight = self.first.weight[:, : values.shape[1]]
        hidden = functional.linear(values, weight, self.first.bias)
        features: Tensor = self.rest(hidden)  # (B, F)
        return features


class BinnedView(nn.Module):
    """The encoded columns of a table, normalised over those that are used; the rest is 0.

    Its width does not depend on the bins, so that a fresh module takes the state of any other.

    Args:
        encode: Fitted, or to be loaded.

    Shape:
        - input: ``(B, K)``; output: ``(B, K + room)``.
    """

    def __init__(self, encode: PiecewiseLinear) -> None:
        super().__init__()
        self.encode = encode
        self.feature_dim = encode.columns + encode.room

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the view."""
        values = self.encode(inputs)  # (B, K) -> (B, K + used)
        normalised = functional.layer_norm(values, values.shape[1:])
        return functional.pad(normalised, (0, self.feature_dim - values.shape[1]))


binned_mlp = BinnedMLP
"""The name that users write."""


def _build_binned(request: BackboneRequest) -> BinnedMLP:
    """Build the network for a table, and fit its bins if there are training rows."""
    backbone = BinnedMLP(request.shape[0])
    if request.rows is not None and len(request.rows) > 0:
        step = -(-len(request.rows) // MOST_ROWS)
        backbone.fit(request.rows.batch(torch.arange(0, len(request.rows), step)).x)
    return backbone


NAMED = (
    NamedBackbone("binned-mlp", ("table",), _build_binned),
    NamedBackbone("mlp", ("table", "image"), lambda request: mlp(math.prod(request.shape))),
)
