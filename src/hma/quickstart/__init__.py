"""The first thing to run: a tour of what a memory is for, on data that needs no download.

One file for each step, in this order: :mod:`few_labels`, :mod:`explained_row`, :mod:`read_or_not`,
:mod:`unseen_digit` (two steps), :mod:`wrong_labels`, :mod:`motifs`. :mod:`tour` walks through them
and keeps what they found; :mod:`tour_page` shows it.
"""

from hma.quickstart.tour import Tour, expect_own_folder, take_tour

__all__ = ["Tour", "expect_own_folder", "take_tour"]
