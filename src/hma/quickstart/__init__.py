"""The first thing to run: a tour of what a memory is for, on data that needs no download.

Its steps, in order: :mod:`few_labels` (few labels, a row explained, the audit), :mod:`digits` (the
unknown, teaching, wrong labels), :mod:`motifs` (graphs). :mod:`tour` walks through them, keeps what
they found and writes the page.
"""

from hma.quickstart.tour import Tour, expect_own_folder, take_tour

__all__ = ["Tour", "expect_own_folder", "take_tour"]
