"""Rows as points on a plane, by t-SNE; the same points for the same rows."""

import numpy as np
from numpy.typing import NDArray

from hma.extras import needed

STEPS = 500
"""Of the layout; a few hundred points settle in them."""


def laid_out(points: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """Return a place on a plane for each row, ``(N, F)`` to ``(N, 2)``."""
    layout = needed("sklearn.manifold", "the map of slots").TSNE(
        perplexity=min(30.0, (len(points) - 1) / 3),
        init="pca" if points.shape[1] > 1 else "random",
        max_iter=STEPS,
        random_state=seed,
    )
    # so few points only wait for each other on more threads
    with needed("threadpoolctl", "the map of slots").threadpool_limits(1):
        return np.asarray(layout.fit_transform(points), dtype=np.float64)
