"""HTML of the plugin's pages: lists of links, and the window report as a table."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

from rewindow.location import Location
from rewindow.pages.drawing import draw

ROWS_OF_A_PAGE = 200


def listing(title: str, addresses: Mapping[str, str]) -> str:
    """Returns a page of links."""
    return draw("links.html", title=title, addresses=addresses)


def not_found(name: str, what: str, why: str, kind: str) -> str:
    """Returns a page that explains why a page of a replay or a stream cannot be shown."""
    title = f"{kind} {name} has no {what}"
    return draw("not_found.html", title=title, why=why)


def refusal(status: int, detail: object) -> str:
    """Returns a page about a rejected request."""
    if status == 403:
        why = "You need the right to read the DAG that this page is about. Ask an administrator of "
        return draw("not_found.html", title="No access", why=f"{why}Airflow for it.")
    return draw(
        "not_found.html", title="Not found" if status == 404 else f"Error {status}", why=str(detail)
    )


def report(
    replay_id: str,
    outputs: Sequence[str],
    output: str,
    path: Location,
    page: int,
) -> tuple[str, bool]:
    """Returns a page of a window report, with a limited number of rows and links to the other pages
    and outputs; and whether the page exists. A page after the last one shows the number of pages.
    """
    first = (page - 1) * ROWS_OF_A_PAGE
    rows = []
    count = 0
    with path.open() as file:
        lines = csv.reader(io.TextIOWrapper(file, "utf-8", newline=""))
        columns = next(lines, [])
        for count, row in enumerate(lines, start=1):
            if count > first:
                rows.append(row)
            if len(rows) > ROWS_OF_A_PAGE:
                break
    is_found = bool(rows) or page == 1
    last = max(-(-count // ROWS_OF_A_PAGE), 1)
    steps = []
    if page > 1:
        earlier = page - 1 if is_found else last
        steps.append((f"?{urlencode({'output': output, 'page': earlier})}", "earlier windows"))
    if len(rows) > ROWS_OF_A_PAGE:
        steps.append((f"?{urlencode({'output': output, 'page': page + 1})}", "later windows"))
    others = [(f"?{urlencode({'output': name})}", name) for name in outputs if name != output]
    links = [
        *steps,
        *others,
        (f"../../files/quality/replays/{replay_id}/{path.name}", "all as CSV"),
        ("page", "the replay"),
    ]
    text = draw(
        "window_report.html",
        output=output,
        replay_id=replay_id,
        links=links,
        columns=columns,
        rows=rows[:ROWS_OF_A_PAGE],
        notice=""
        if is_found
        else f"The requested page does not exist: this report has {last:,} pages.",
    )
    return text, is_found
