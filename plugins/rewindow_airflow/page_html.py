"""What the plugin's own pages look like: lists of links, and the window report as a table."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from html import escape
from itertools import islice
from pathlib import Path
from urllib.parse import urlencode

ROWS_OF_A_PAGE = 200


def listing(title: str, addresses: Mapping[str, str]) -> str:
    """Returns a page of links."""
    links = "".join(f'<p><a href="{escape(address)}">{escape(name)}</a></p>' for name, address in addresses.items())
    return _page(title, f"<h1>{escape(title)}</h1>{links}")


def not_yet(replay_id: str, what: str, writer: str) -> str:
    """Returns the page of something that does not exist so far, and who makes it."""
    return _page("Not there yet", f"<h1>Not there yet</h1><p>Replay <code>{escape(replay_id)}</code> has no {what}.</p>"
                 f"<p class=soft>{escape(writer)}</p>")  # fmt: skip


def report(replay_id: str, outputs: Sequence[str], output: str, path: Path, page: int) -> str:
    """Returns a page of a window report: as many rows as fit, links to the others and to the other outputs."""
    first = (page - 1) * ROWS_OF_A_PAGE
    with path.open(newline="") as file:
        lines = csv.reader(file)
        columns = next(lines, [])
        rows = list(islice(lines, first, first + ROWS_OF_A_PAGE + 1))
    more = len(rows) > ROWS_OF_A_PAGE
    head = f"<h1>Window report of {escape(output)}</h1><p class=soft>Replay <code>{escape(replay_id)}</code></p>"
    others = [_link(name, output=name) for name in outputs if name != output]
    steps = ([_link("earlier windows", output=output, page=page - 1)] if page > 1 else []) + (
        [_link("later windows", output=output, page=page + 1)] if more else []
    )
    links = " · ".join(
        [*steps, *others, _link("all as CSV", address=f"../../files/quality/replays/{replay_id}/{path.name}")]
    )
    return _page(f"Window report: {output}", f"{head}<p>{links}</p>{_table(columns, rows[:ROWS_OF_A_PAGE])}")


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(column.replace('_', ' '))}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(value)}</td>' for value in row)}</tr>" for row in rows)
    return f'<div class="scroll"><table class="num"><tr>{head}</tr>{body}</table></div>'


def _link(words: str, address: str = "", **query: object) -> str:
    return f'<a href="{escape(address or "?" + urlencode(query))}">{escape(words)}</a>'


def _page(title: str, body: str) -> str:
    from rewindow.pages.style import html_page

    return html_page(title, body)
