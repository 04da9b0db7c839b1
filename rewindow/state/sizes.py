"""The sizes of the states in a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from rewindow.state.files import StateFiles, folder_of
from rewindow.storage import Table, query


@dataclass(frozen=True)
class StateSize:
    """The size of an operator's state in a checkpoint: its number of rows, and the bytes of its
    cell or its files.
    """

    operator: str
    rows: int
    bytes: int


def state_sizes(table: Table, mark: int) -> list[StateSize]:
    """Returns the sizes of the states at a mark, from the newest attempt that saved them."""
    sql = (
        f"select operator, rows, files, state, attempt from c where mark = {mark} and operator "
        "<> ''"
    )
    rows = sorted(query(sql, c=table).to_pylist(), key=lambda row: str(row["operator"]))
    newest = max((row["attempt"] for row in rows), default=None)
    sizes = []
    with table.reading():
        for row in rows:
            if row["attempt"] == newest:
                size = _files_bytes(table, row["files"]) or len(row["state"])
                sizes.append(StateSize(row["operator"], row["rows"], size))
    return sizes


def _files_bytes(table: Table, files: str | None) -> int:
    return (
        StateFiles.from_json(files, folder_of(table.path), pa.schema([]), 0).bytes() if files else 0
    )
