"""Records with made-up measures for pictures: nothing is trained, points are drawn at random."""

import random
from dataclasses import replace

from table_records import made_up_table, records_of

from hma.paper.picture_measures import packed
from hma.paper.table import ATTENTION_MAP, SLOT_MAP, AttentionMap, SlotMap

CLASSES = ["rose", "<b>tulip</b>", "$daisy$"]
SLOTS, ROWS, NEAR = 4, 6, 3


def number(value, p=0.01):
    return {"value": value, "chance": 0.1, "low": 0.05, "high": 0.15, "p": p}


def slot_map(seed, **numbers):
    """Return the measure of three classes, four slots and six rows of each."""
    draw = random.Random(seed)
    slots, rows = len(CLASSES) * SLOTS, len(CLASSES) * ROWS

    def places(count):
        return packed([draw.uniform(-9, 9) for _ in range(count)], 2)

    def some(of, count):
        return packed([draw.randrange(of) for _ in range(count * NEAR)])

    return {
        "classes": CLASSES,
        "split": "train",
        "slots": {
            "class": packed([c for c in range(3) for _ in range(SLOTS)]),
            "alone x": places(slots),
            "alone y": places(slots),
            "x": places(slots),
            "y": places(slots),
            "near": some(rows, slots),
        },
        "rows": {
            "class": packed([c for c in range(3) for _ in range(ROWS)]),
            "place": packed(range(100, 100 + rows)),
            "x": places(rows),
            "y": places(rows),
            "near": some(slots, rows),
        },
        "numbers": {
            "silhouette": number(0.4),
            "nearest": number(0.12, p=0.4),
            "apart": number(0.9),
        }
        | numbers,
    }


def attention_map(seed):
    """Return the measure of three classes, six samples and four slots of each."""
    draw = random.Random(seed)
    samples, slots = len(CLASSES) * ROWS, len(CLASSES) * SLOTS
    return {
        "classes": CLASSES,
        "split": "train",
        "places": packed(range(samples)),
        "sample classes": packed([c for c in range(3) for _ in range(ROWS)]),
        "slot classes": packed([c for c in range(3) for _ in range(SLOTS)]),
        "unit": 0.01,
        "shares": [
            packed([draw.randrange(400) for _ in range(samples + slots)]) for _ in range(samples)
        ],
        "numbers": {
            "alike": number(0.2),
            "same slots": number(0.12, p=0.4),
            "to slots": number(-0.3),
        },
    }


def pictured(**changes):
    """Return a table with both kinds of pictures, and its records."""
    pictures = (
        SlotMap(title="Where slots lie", rows=("hma",)),
        AttentionMap(title="Who looks at whom", rows=("hma",)),
    )
    table = made_up_table(pictures=pictures, **changes)
    records = {
        cell: replace(
            record,
            measures={SLOT_MAP: slot_map(cell.seed), ATTENTION_MAP: attention_map(cell.seed)},
        )
        if (cell.task, cell.method) == ("left", "hma")
        else record
        for cell, record in records_of(table).items()
    }
    return table, records
