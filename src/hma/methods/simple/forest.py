"""Random forest: scikit-learn's trees, kept as tensors."""

from collections.abc import Iterator
from typing import Any, ClassVar, final

import numpy as np
from torch import Tensor

from hma.backbones.frozen import Frozen
from hma.data import Task
from hma.extras import needed
from hma.methods.learner import BackboneFactory, Method
from hma.methods.simple.simple_row import SimpleModule, logits_of, simple_method
from hma.methods.simple.trees import Nodes, Trees
from hma.targets import Classes, Number, Target

TREES = 100
LEAVES = (1, 3, 10)


@final
class RandomForest(SimpleModule):
    """The mean of what trees say, each grown on rows of its own drawing."""

    serves: ClassVar[tuple[type[Target], ...]] = (Classes, Number)

    def __init__(self, task: Task, backbone: Frozen | None, choices: tuple[int, ...]) -> None:
        super().__init__(task, backbone, choices)
        of_numbers = isinstance(task.target, Number)
        self.trees = Trees(values=1 if of_numbers else task.target.table_rows)

    def answer(self, vectors: Tensor) -> Tensor:
        """Return the logits of vectors."""
        mean = self.trees.answers(vectors).mean(dim=1)  # (B, trees, C) -> (B, C)
        return mean if isinstance(self.target, Number) else logits_of(mean, self.target)

    def candidates(self, vectors: Tensor, labels: Tensor, seed: int) -> Iterator[dict[str, Any]]:
        """Grow trees with more and more rows at a leaf."""
        ensemble = needed("sklearn.ensemble", "a random forest")
        of_numbers = isinstance(self.target, Number)
        kind = ensemble.RandomForestRegressor if of_numbers else ensemble.RandomForestClassifier
        for rows in self.choices:
            model = kind(TREES, min_samples_leaf=rows, random_state=seed)
            model.fit(vectors.numpy(), labels.numpy())
            classes = [0] if of_numbers else model.classes_
            places = np.asarray(classes)
            self.trees.take([self._nodes(tree.tree_, places) for tree in model.estimators_])
            yield {"rows_at_a_leaf": rows}

    def _nodes(self, tree: Any, classes: Any) -> Nodes:
        value = np.zeros((tree.node_count, self.trees.value.shape[1]))
        value[:, classes] = tree.value[:, 0]
        return Nodes(
            feature=tree.feature,
            threshold=tree.threshold,
            left=tree.children_left,
            right=tree.children_right,
            missing_left=tree.missing_go_to_left > 0,
            value=value,
        )


def forest(backbone: BackboneFactory | None = None, *, leaves: tuple[int, ...] = LEAVES) -> Method:
    """Return a random forest of 100 trees.

    Args:
        backbone: Makes the encoder; a frozen one stands in front.
        leaves: Least number of rows at a leaf; the validation rows choose one.
    """
    return simple_method(RandomForest, backbone, tuple(leaves))
