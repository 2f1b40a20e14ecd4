from pathlib import Path

import pytest

from hma.tables import Results, load_table

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
