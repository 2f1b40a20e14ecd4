r"""Multiply-adds that a training step cannot do without, from its sizes alone.

Forward, one term per matrix product (:math:`D = F + L`; LayerNorm, softmax, GELU and the score of
a token with itself are not matrix products and are left out):

.. math::

    \text{real} &= \underbrace{BD^2}_{\text{queries}} + \underbrace{2BD^2}_{\text{own keys, values}}
        + \underbrace{2MD^2}_{\text{queue}} + \underbrace{2BMD}_{\text{scores, mix}}
        + \underbrace{8BD^2}_{\text{feed-forward}} \\
    \text{synthetic} &= BD^2 + 2BD^2 + 2SD^2 + 2B(B + S)D + 8BD^2 \\
    \text{head} &= BDC

Backward: a product ``X W`` has one gradient for each operand, each as long as the product itself,
so backward is twice forward less the gradients nobody needs. Here all are needed. The queue's
features take none, but its label embeddings and the LayerNorm in front of the projection do, and
both come out of that projection's input gradient; the batch's tokens pass theirs to the MASK
embedding and to the backbone. A step is therefore three times forward.
"""

from benchmarks.shapes import Shape


def forward_multiply_adds(shape: Shape) -> int:
    """Count the multiply-adds of one forward pass.

    Example:
        >>> from benchmarks.shapes import VIT_SHAPE
        >>> forward_multiply_adds(VIT_SHAPE)
        4000735232
    """
    queue = _project(shape, shape.queue) + _attend(shape, shape.queue)
    return queue + _all_but_the_queue(shape)


def step_multiply_adds(shape: Shape) -> int:
    """Count the multiply-adds of forward and backward."""
    return 3 * forward_multiply_adds(shape)


def naive_step_multiply_adds(shape: Shape) -> int:
    """Count the same where every sample projects itself and a queue of its own.

    That is :math:`2B(1 + M)D^2` in place of :math:`2BD^2 + 2MD^2`.
    """
    queue = _project(shape, shape.batch * shape.queue) + _attend(shape, 1 + shape.queue)
    return 3 * (queue + _all_but_the_queue(shape))


def _all_but_the_queue(shape: Shape) -> int:
    block = 11 * shape.batch * shape.token**2  # queries, own keys and values, feed-forward
    seen = shape.slots + (shape.batch if shape.batch_attention else 0)
    synthetic = _project(shape, shape.slots) + _attend(shape, seen)
    return 2 * block + synthetic + shape.batch * shape.token * shape.classes


def _project(shape: Shape, rows: int) -> int:
    return 2 * rows * shape.token**2  # keys and values


def _attend(shape: Shape, rows: int) -> int:
    return 2 * shape.batch * rows * shape.token  # scores and mix
