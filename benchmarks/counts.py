r"""Multiply-adds and bytes that a training step cannot do without, from its sizes alone.

Forward, one part for each matrix product (:math:`D = F + L`; LayerNorm, softmax, GELU and the score
of a token with itself are not matrix products and are left out):

.. math::

    \text{real} &= \underbrace{BD^2}_{\text{queries}} + \underbrace{2BD^2}_{\text{own keys, values}}
        + \underbrace{2MD^2}_{\text{queue}} + \underbrace{2BMD}_{\text{scores, mix}}
        + \underbrace{8BD^2}_{\text{feed-forward}} \\
    \text{synthetic} &= BD^2 + 2BD^2 + 2SD^2 + 2B(B + S)D + 8BD^2 \\
    \text{head} &= BDC

The bytes of a part are those of its results in float32: what it writes, and what backward reads
again. A product with the queue writes :math:`4BHM` for the scores and :math:`4BD` for the mix.

Backward: a product ``X W`` has one gradient for each operand, each as long as the product itself,
so backward is twice forward less the gradients nobody needs. Here all are needed. The queue's
features take none, but its label embeddings and the LayerNorm in front of the projection do, and
both come out of that projection's input gradient; the batch's tokens pass theirs to the MASK
embedding and to the backbone. A step is therefore three times forward.
"""

from typing import NamedTuple

from benchmarks.shapes import Shape

FLOAT = 4
"""Bytes of a number."""


class Part(NamedTuple):
    """A part of the forward pass.

    Args:
        name: What it makes.
        grows: Its multiply-adds as a formula.
        multiply_adds: How many.
        results: Numbers that it writes.
    """

    name: str
    grows: str
    multiply_adds: int
    results: int

    @property
    def bytes(self) -> int:
        """Of what it writes."""
        return FLOAT * self.results


def forward_parts(shape: Shape) -> tuple[Part, ...]:
    """Return the matrix products of one forward pass, in order.

    Example:
        >>> from benchmarks.shapes import VIT_SHAPE
        >>> [part.name for part in forward_parts(VIT_SHAPE)][2]
        'real: keys and values of the queue'
    """
    b, d, m, s, h = shape.batch, shape.token, shape.queue, shape.slots, shape.heads
    seen = s + (b if shape.batch_attention else 0)
    seen_as = "(B + S)" if shape.batch_attention else "S"
    products = 2 if shape.batch_attention else 1  # the batch and the slots are mixed apart

    def block(read: str) -> tuple[Part, Part]:
        return (
            Part(f"{read}: queries", "B D²", b * d**2, b * d),
            Part(f"{read}: own keys and values", "2 B D²", 2 * b * d**2, 2 * b * d),
        )

    def feed_forward(read: str) -> Part:
        return Part(f"{read}: feed-forward", "8 B D²", 8 * b * d**2, 5 * b * d)

    return (
        *block("real"),
        Part("real: keys and values of the queue", "2 M D²", 2 * m * d**2, 2 * m * d),
        Part("real: scores and mix", "2 B M D", 2 * b * m * d, b * (h * m + d)),
        feed_forward("real"),
        *block("synthetic"),
        Part("synthetic: keys and values of the slots", "2 S D²", 2 * s * d**2, 2 * s * d),
        Part(
            "synthetic: scores and mix",
            f"2 B {seen_as} D",
            2 * b * seen * d,
            b * (h * seen + products * d),
        ),
        feed_forward("synthetic"),
        Part("head", "B D C", b * d * shape.classes, b * shape.classes),
    )


def forward_multiply_adds(shape: Shape) -> int:
    """Count the multiply-adds of one forward pass.

    Example:
        >>> from benchmarks.shapes import VIT_SHAPE
        >>> forward_multiply_adds(VIT_SHAPE)
        4000735232
    """
    return sum(part.multiply_adds for part in forward_parts(shape))


def step_multiply_adds(shape: Shape) -> int:
    """Count the multiply-adds of forward and backward."""
    return 3 * forward_multiply_adds(shape)


def naive_step_multiply_adds(shape: Shape) -> int:
    """Count the same where every sample projects itself and a queue of its own.

    That is :math:`2B(1 + M)D^2` in place of :math:`2BD^2 + 2MD^2`.
    """
    b, d, m = shape.batch, shape.token, shape.queue
    naive = forward_multiply_adds(shape) + 2 * (b - 1) * m * d**2 + 2 * b * d
    return 3 * naive
