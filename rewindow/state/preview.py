"""Reads the first rows of a state of any size. Files are only read until enough rows are found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rewindow.errors import InputError
from rewindow.state.files import DELETED, OperatorState, without_keys

Key = tuple[object, ...]


def first_rows(state: OperatorState, limit: int, where: Mapping[str, str]) -> pa.Table:
    """Returns the first rows of a state, filtered by column values.

    In a state in files, rows of a later step replace all rows with the same key, so the newest step
    is read first.

    Args:
        state: the state.
        limit: maximum number of rows.
        where: column to its value as text.

    Raises:
        InputError: a column does not exist, or cannot be cast to text.
        OSError, pyarrow.ArrowException: a file cannot be read.
    """
    unknown = sorted(set(where) - set(state.schema.names))
    if unknown:
        raise InputError(
            f'the state has no column "{unknown[0]}"',
            hint=f"It has: {', '.join(state.schema.names)}.",
        )
    parts = [state.schema.empty_table()]
    left = limit
    for rows in _parts(state, where):
        parts.append(rows.slice(0, left))
        left -= parts[-1].num_rows
        if left <= 0:
            break
    return pa.concat_tables(parts)


def _parts(state: OperatorState, where: Mapping[str, str]) -> Iterator[pa.Table]:
    if isinstance(state, pa.Table):
        yield _only(state, where)
        return
    replaced: set[Key] = set()
    for step in range(state.steps, -1, -1):
        names = [*state.schema.names, *([DELETED] if step else [])]
        for path in state.paths(step):
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(columns=names):
                    rows = _only(pa.table(batch).select(names), where)
                    if state.steps:
                        rows = _newest(
                            rows,
                            state.key,
                            replaced,
                            is_base=step == 0,
                        )
                    yield rows.select(state.schema.names).cast(state.schema)


def _newest(
    rows: pa.Table,
    key: tuple[str, ...],
    replaced: set[Key],
    *,
    is_base: bool,
) -> pa.Table:
    """Returns the rows of a step whose key is not in a later step.

    Rows for removed keys are left out.
    """
    rows, keys = without_keys(rows, key, replaced)
    if is_base:
        return rows
    replaced.update(keys)
    return rows.filter(pc.invert(rows[DELETED]))


def _only(rows: pa.Table, where: Mapping[str, str]) -> pa.Table:
    for name, value in where.items():
        try:
            text = rows[name].cast(pa.string())
        except pa.ArrowException as error:
            raise InputError(
                f'column "{name}" of the state is {rows[name].type}, which cannot be compared as '
                "text"
            ) from error
        rows = rows.filter(pc.equal(text, value))
    return rows
