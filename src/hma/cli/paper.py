"""``hma paper``: what of the paper holds, by one rule, from the records."""

from typing import Annotated, Literal

from cyclopts import Parameter

from hma.cli.run import PLACES, Places
from hma.errors import UserError
from hma.extras import importing


def paper(
    *,
    format: Literal["markdown", "csv"] = "markdown",
    places: Annotated[Places, Parameter(name="*")] = PLACES,
) -> None:
    """Print what of the paper holds: its claims, and every number that it prints beside ours.

    Each has a verdict (confirmed, not confirmed, open) by the rule that the page opens with, and
    each number the command that repeats it. It is docs/results/paper.md, computed from the records.

    Parameters
    ----------
    format
        markdown, or csv for all numbers, those included that the paper does not print.
    """
    with importing():
        from hma.paper.experiment_files import experiments_folder, load_tables
        from hma.paper.report.documents import paper_verdict
        from hma.paper.report.verdict_page import comma_separated, page
        from hma.paper.results import Results

    tables = load_tables(experiments_folder(places.experiments))
    found = paper_verdict(tables.values(), Results(places.results))
    if found is None:
        raise UserError(
            f"no table of the paper has a record in {places.results}; hma run measures one, and "
            "hma tables lists them"
        )
    print(page(found) if format == "markdown" else comma_separated(found), end="")
