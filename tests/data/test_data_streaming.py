"""Streams: memory that does not grow with the input."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch

from hma.data import PreparationOptions, open_source, stream
from hma.data.table.preparation import TablePreparation
from hma.errors import UserError
from hma.targets import Classes

MEASURE = """
import json, resource, sys
import torch
from hma.data import preparation_from_json, stream
torch.set_num_threads(1)
preparation = preparation_from_json(json.load(open(sys.argv[1])))
rows = sum(len(batch.ids) for batch in stream(preparation, sys.argv[2], 256))
print(rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def table(file, rows):
    generator = np.random.default_rng(rows)
    frame = pd.DataFrame(generator.normal(size=(rows, 6)).round(4), columns=list("abcdef"))
    frame["word"] = generator.choice(["red", "green", "blue"], rows)
    if file.suffix == ".csv":
        frame.to_csv(file, index=False)
    else:
        frame.to_parquet(file, row_group_size=10_000)
    return file


def measured(folder, file):
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(folder / "preparation.json"), str(file)],
        check=True,
        capture_output=True,
        text=True,
    )
    rows, kilobytes = map(int, done.stdout.split())
    return rows, kilobytes / 1024


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_ten_times_the_rows_take_no_more_memory(tmp_path, kind):
    small, large = (table(tmp_path / f"{rows}.{kind}", rows) for rows in (30_000, 300_000))
    preparation = TablePreparation.fit(
        open_source(small), range(1000), ("a", "b"), Classes(2), PreparationOptions()
    )
    (tmp_path / "preparation.json").write_text(json.dumps(preparation.to_json()))
    few, before = measured(tmp_path, small)
    many, after = measured(tmp_path, large)
    assert (few, many) == (30_000, 300_000)
    assert after - before < 25  # the rows as float32 alone are 10 MB, as text 60 MB


@pytest.mark.parametrize("batch_size", [1, 7, 1000, 50_000])
def test_batches_are_of_one_size_across_chunks(tmp_path, batch_size):
    rows = 20_001 if batch_size > 1 else 50
    source = open_source(table(tmp_path / "a.csv", rows))
    options = PreparationOptions()
    preparation = TablePreparation.fit(source, range(50), ("a", "b"), Classes(2), options)
    batches = list(stream(preparation, source, batch_size))
    sizes = [len(batch.ids) for batch in batches]
    assert set(sizes[:-1]) <= {batch_size}
    assert torch.cat([batch.ids for batch in batches]).tolist() == list(range(rows))
    whole = preparation.split(source)
    torch.testing.assert_close(torch.cat([b.x for b in batches]), whole.x, rtol=0, atol=0)


def test_labels_come_along_and_a_missing_one_is_named_by_its_row(tmp_path):
    lines = [f"{place},{'ab'[place % 2]}" for place in range(20_000)]
    (tmp_path / "a.csv").write_text("x,y\n" + "\n".join(lines) + "\n")
    source = open_source(tmp_path / "a.csv", target="y")
    options = PreparationOptions()
    preparation = TablePreparation.fit(source, range(50), ("a", "b"), Classes(2), options)
    labels = torch.cat([batch.y for batch in stream(preparation, source, 512)])
    assert labels.tolist() == [0, 1] * 10_000
    lines[19_000] = "5,"
    (tmp_path / "a.csv").write_text("x,y\n" + "\n".join(lines) + "\n")
    again = open_source(tmp_path / "a.csv", target="y")
    with pytest.raises(UserError, match=r"no label in 1 of .*first in row 19000"):
        list(stream(preparation, again, 512))


def test_an_empty_table_streams_nothing(tmp_path):
    source = open_source(table(tmp_path / "a.csv", 20))
    options = PreparationOptions()
    preparation = TablePreparation.fit(source, range(20), ("a", "b"), Classes(2), options)
    header = (tmp_path / "a.csv").read_text().splitlines()[0]
    (tmp_path / "empty.csv").write_text(header + "\n")
    assert sum(len(batch.ids) for batch in stream(preparation, tmp_path / "empty.csv", 8)) == 0


def test_a_batch_of_nothing_is_refused(tmp_path):
    source = open_source(table(tmp_path / "a.csv", 20))
    options = PreparationOptions()
    preparation = TablePreparation.fit(source, range(20), ("a", "b"), Classes(2), options)
    with pytest.raises(UserError, match=r"batch_size must be at least 1, got 0"):
        stream(preparation, source, 0)
