"""The options of the classifier and the regressor, as scikit-learn wants them."""

from typing import Any

from sklearn.base import BaseEstimator


class TableOptions(BaseEstimator):  # type: ignore[misc]
    """Keep options as they are given; they are checked when training starts.

    Args:
        backbone, hidden, ...: As those of :class:`hma.MemoryClassifier` and
            :class:`hma.MemoryRegressor`.
    """

    def __init__(
        self,
        backbone: Any = None,
        *,
        hidden: Any = (128, 128),
        memory: str = "vote",
        memory_size: int | None = None,
        slots_per_class: int | None = None,
        slot_init: str = "normal",
        contrastive: float = 0.0,
        label_dim: int = 16,
        num_heads: int = 4,
        dropout: float = 0.1,
        momentum: float = 0.99,
        ablation: str = "hma",
        context: str = "alone",
        max_epochs: int | None = None,
        batch_size: int = 64,
        learning_rate: float = 1e-3,
        early_stopping: bool | str = "auto",
        validation_fraction: float = 0.2,
        patience: int = 20,
        linear: bool = True,
        standardize: bool = True,
        random_state: Any = None,
        verbose: bool = False,
        device: Any = "cpu",
    ) -> None:
        self.backbone = backbone
        self.hidden = hidden
        self.memory = memory
        self.memory_size = memory_size
        self.slots_per_class = slots_per_class
        self.slot_init = slot_init
        self.contrastive = contrastive
        self.label_dim = label_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.momentum = momentum
        self.ablation = ablation
        self.context = context
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.linear = linear
        self.standardize = standardize
        self.random_state = random_state
        self.verbose = verbose
        self.device = device
