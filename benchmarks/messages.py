r"""What processes that train together hand to each other in a step, in bytes.

Letters are those of the design; every process has ``B`` rows of a step, there are ``N`` of them, a
number takes ``e`` bytes, ``P`` weights are trained. The count of rows goes ahead of whatever is
gathered, since processes may have different numbers of rows: 8 bytes.

.. math::

    \text{the paper's: forward} &= 2 (8 + B D e) \text{ gathered: keys and values of the batch} \\
    \text{backward} &= 2 N B D e + P e \text{ summed: their gradients; those of the weights} \\
    \text{remember} &= (8 + 16 B) + (8 + B F e) \text{ gathered: labels and ids; features} \\
    \text{the default} &= P e \text{ summed}
"""

from typing import Literal, NamedTuple

from benchmarks.shapes import Shape

Collective = Literal["all_gather", "all_reduce"]
Design = Literal["default", "paper"]
COUNT, ID = 8, 8
"""Bytes of a count of rows, and of a label or sample id."""


class Message(NamedTuple):
    """What a process hands to one collective operation."""

    what: str
    collective: Collective
    size: int
    """Bytes."""

    def sent(self, processes: int) -> float:
        """Return the bytes that a process sends, in a ring.

        Example:
            >>> Message("", "all_gather", 10).sent(4), Message("", "all_reduce", 10).sent(4)
            (30.0, 15.0)
        """
        others = processes - 1
        return float(self.size * others * (1 if self.collective == "all_gather" else 2 / processes))

    def hops(self, processes: int) -> int:
        """Return how often a process waits for its neighbour in the ring."""
        return (processes - 1) * (1 if self.collective == "all_gather" else 2)


def messages(
    design: Design, shape: Shape, processes: int, trained: int, *, number: int = 4
) -> list[Message]:
    """Return what a process hands over in a step: forward, backward, write.

    Args:
        design: 'paper' is :class:`hma.HMA`; 'default' is :class:`hma.VotingMemory`, which sends
            what the backbone sends without a memory.
        shape: Sizes; ``batch`` is what each process has.
        processes: How many train together.
        trained: Weights with a gradient, ``P``.
        number: Bytes of a number.
    """
    weights = Message("gradients of the weights", "all_reduce", trained * number)
    if processes == 1:
        return []
    if design == "default":  # its memory is made when training is over
        return [weights]
    rows, found = shape.batch, list[Message]()
    for name in ("keys", "values") if shape.batch_attention else ():
        found += _gathered(f"{name} of the batch", rows * shape.token * number)
        whole = processes * rows * shape.token * number
        found.append(Message(f"gradients of the {name}", "all_reduce", whole))
    found += _gathered("labels and ids to write", 2 * rows * ID)
    found += _gathered("features to write", rows * shape.features * number)
    return [*found, weights]


def _gathered(what: str, size: int) -> list[Message]:
    return [
        Message(f"count of {what}", "all_gather", COUNT),
        Message(what, "all_gather", size),
    ]
