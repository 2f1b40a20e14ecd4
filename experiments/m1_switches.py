"""M1-switches: what makes the memory help on tables? One thing changed at a time.

Run it::

    hma run M1-switches --budget smoke --workers 2     # a minute
    hma run M1-switches --budget small --workers 2     # the eight small tables, one seed
    hma run M1-switches --budget full --workers 2      # the twelve tables, three seeds

Published: nothing. Tables, recipe and rule are those of M1.
"""

from dataclasses import replace

from hma.paper.table import Budget, Table

from ._memory_rows import NAMES_OF_SWITCHES, SWITCHES
from ._real_data import SMALL_TABLES
from .m1_tables import TABLE as M1
from .m1_tables import recipe

TABLE = Table(
    key="M1-switches",
    title="What makes a memory help? One switch at a time",
    problems=M1.problems,
    rows=SWITCHES,
    budgets={
        "smoke": Budget(
            what="two tables, one epoch, one seed",
            recipe=replace(recipe, epochs=1),
            seeds=1,
            tasks=("Zoo", "Glass"),
        ),
        "small": Budget(
            what="the eight tables of up to 1,000 rows, one seed",
            recipe=recipe,
            seeds=1,
            tasks=SMALL_TABLES,
        ),
        "full": Budget(
            what="twelve tables, of each at most 2,000 training rows, three seeds",
            recipe=recipe,
            seeds=3,
        ),
    },
    baseline="plain-vote",
    recorded_names=NAMES_OF_SWITCHES,
    page="when-memory-helps",
    notes=M1.notes,
)
