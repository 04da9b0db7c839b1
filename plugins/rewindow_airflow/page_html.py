"""HTML of the plugin's pages: lists of links, and the window report as a table."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from itertools import islice
from urllib.parse import urlencode

from rewindow.location import Location
from rewindow.pages.drawing import draw

ROWS_OF_A_PAGE = 200


def listing(title: str, addresses: Mapping[str, str]) -> str:
    """Returns a page of links."""
    return draw("links.html", title=title, addresses=addresses)


def not_yet(name: str, what: str, writer: str, kind: str = "Replay") -> str:
    """Returns a page about a result that does not exist yet for a replay or a stream, and how to
    create it.
    """
    return draw("not_there.html", kind=kind, name=name, what=what, writer=writer)


def report(replay_id: str, outputs: Sequence[str], output: str, path: Location, page: int) -> str:
    """Returns a page of a window report, with a limited number of rows and links to the other pages
    and outputs.
    """
    first = (page - 1) * ROWS_OF_A_PAGE
    with path.open() as file:
        lines = csv.reader(io.TextIOWrapper(file, "utf-8", newline=""))
        columns = next(lines, [])
        rows = list(islice(lines, first, first + ROWS_OF_A_PAGE + 1))
    steps = (
        [(f"?{urlencode({'output': output, 'page': page - 1})}", "earlier windows")]
        if page > 1
        else []
    )
    if len(rows) > ROWS_OF_A_PAGE:
        steps.append((f"?{urlencode({'output': output, 'page': page + 1})}", "later windows"))
    others = [(f"?{urlencode({'output': name})}", name) for name in outputs if name != output]
    links = [
        *steps,
        *others,
        (f"../../files/quality/replays/{replay_id}/{path.name}", "all as CSV"),
    ]
    return draw(
        "window_report.html",
        output=output,
        replay_id=replay_id,
        links=links,
        columns=columns,
        rows=rows[:ROWS_OF_A_PAGE],
    )
