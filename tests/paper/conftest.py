from pathlib import Path

import pytest

from hma.paper.experiment_files import load_table
from hma.paper.results import Results

TOY = Path(__file__).parent / "toys" / "toy.py"


@pytest.fixture(scope="session")
def toy():
    return load_table(TOY)


@pytest.fixture
def toy_file():
    return TOY


@pytest.fixture
def results(tmp_path):
    return Results(tmp_path / "results")
