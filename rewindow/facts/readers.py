"""The rows of a replay's staged tables that readers see. For every window, these are the rows of
the newest attempt that sealed it.

A window that was computed again has rows of several attempts; the facts record which of them are
sealed. The rule is defined here, once, as SQL: all code that reads staged rows or seals builds on
`newest_seals`.

Rules: R52
"""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa

from rewindow.location import Location
from rewindow.storage.delta import Table
from rewindow.storage.layout import FACTS
from rewindow.storage.queries import in_order, query
from rewindow.windows import WindowRange


def newest_seals(facts: str = "facts") -> str:
    """Returns SQL for window_id, port and attempt.

    For each window of an output or error table, the attempt is the one whose rows readers use.
    """
    return f"""select window_id, port, max(attempt) as attempt from {facts}
        where direction in ('out', 'error') and not lost group by window_id, port"""


def seen_rows(rows: str, port: str, *, facts: str = "facts", columns: str = "o.*") -> str:
    """Returns SQL for the visible rows of a staged table.

    Args:
        rows: name of the staged table in the query.
        port: name of the output or error port.
        facts: name of the facts table in the query.
        columns: columns to select from `o`, the staged table.
    """
    return f"""select {columns} from {rows} o join ({newest_seals(facts)}) s
        on o.window_id = s.window_id and o.attempt = s.attempt where s.port = '{port}'"""


def staged_seals(facts: Table, port: str, windows: WindowRange) -> pa.Table:
    """Returns the visible seals of an output: window_id, attempt, tuples, digest, float_digest, in
    ascending order.
    """
    # Of each window, the rows of its newest attempt are needed. A join in SQL over a million
    # windows takes longer than everything else that a publication reads. So the rows are sorted by
    # window and attempt, and numpy finds the last attempt of each window. The final group-by
    # removes duplicates of a seal.
    sql = f"""select window_id, attempt, tuples, digest, float_digest from facts
        where direction in ('out', 'error') and not lost and port = '{port}'
        and window_id between {windows.first} and {windows.last}"""
    rows = in_order(query(sql, facts=facts), "window_id", "attempt")
    window = rows["window_id"].to_numpy()
    attempt = rows["attempt"].to_numpy()
    if (again := window[1:] == window[:-1]).any():
        newest = np.append(~again, True)
        newest = attempt == attempt[newest][np.cumsum(newest) - newest]
        rows = in_order(
            rows.filter(pa.array(newest))
            .group_by(rows.column_names, use_threads=False)
            .aggregate([]),
            "window_id",
        )
    return rows


def seals_digest(seals: pa.Table) -> str:
    """Returns a digest of windows, counts and digests of exact columns, independent of the attempts
    that wrote them.
    """
    digest = hashlib.sha256()
    for name in ("window_id", "tuples", "digest"):
        digest.update(repr(seals[name].to_pylist()).encode())
    return digest.hexdigest()


def sealed_counts(facts: Table, windows: WindowRange) -> dict[str, int]:
    """Returns, for each output, the number of visible windows in a range.

    Outputs without visible windows are left out.
    """
    sql = f"""select port, count(*) as windows from ({newest_seals()})
        where window_id between {windows.first} and {windows.last} group by port"""
    counts = query(sql, facts=facts)
    return dict(zip(counts["port"].to_pylist(), counts["windows"].to_pylist(), strict=True))


def sealed_to(facts: Table, before: int) -> int:
    """Returns the last window that any attempt has sealed, whatever the marks of later attempts;
    `before` if there is none.
    """
    newest = query("select max(window_id) as w from f where direction = 'out'", f=facts)
    window = newest["w"][0].as_py()
    return before if window is None else int(window)


def read_output(root: Location, output: str, windows: WindowRange) -> pa.Table:
    """Returns the visible rows of a staged output in a range."""
    sql = f"""select * from ({seen_rows("output", output)})
        where window_id between {windows.first} and {windows.last}"""
    return query(sql, output=Table.open(root / output), facts=Table.open(root / FACTS))
