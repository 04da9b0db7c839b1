"""`rewindow gaps`: windows empty or missing, and the silent stretches of each key."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from rewindow.commands.completion import streams
from rewindow.commands.project import load_project
from rewindow.commands.screen import First, From, Last, To, out, print_rows


class Format(StrEnum):
    """How a report is written."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def gaps(
    stream: Annotated[str, typer.Argument(help="Name of a recorded or published stream.", autocompletion=streams)],
    from_time: From = None,
    to_time: To = None,
    first: First = None,
    last: Last = None,
    form: Annotated[Format, typer.Option("--format", help="table, csv or json.")] = Format.TABLE,
    as_json: Annotated[bool, typer.Option("--json", help="Same as --format json.")] = False,
    limit: Annotated[int, typer.Option(help="Rows of the table; csv and json are never cut.", min=1)] = 40,
) -> None:
    """Report what is silent in a recorded stream. Starts no JVM.

    A window that is missing may hold tuples: a silence is open where missing windows begin, another begins behind them.

    Examples:

        rewindow gaps weather

        rewindow gaps weather --from 2013-12-01 --to 2014-01-01 --format csv
    """
    from rewindow.inspection.gaps import gaps as find_gaps

    config = load_project()
    report = find_gaps(config, stream, first, last, from_time=from_time, to_time=to_time)
    if as_json or form is Format.JSON:
        typer.echo(report.to_json())
    elif form is Format.CSV:
        typer.echo(report.to_csv(), nl=False)
    else:
        columns, rows = report.table()
        print_rows("", columns, rows[:limit])
        if len(rows) > limit:
            out.print(f"... and {len(rows) - limit:,} more; --format csv prints all")
