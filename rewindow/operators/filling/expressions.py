"""Expressions of gap filling: what may be named in the `sql` of a column, and what is said of one that cannot be."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rewindow.errors import InputError
from rewindow.names import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

_TEXTS = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_SIDE = re.compile(r"(?<![\w.`])(previous|next)\s*\.\s*(?:`([^`]+)`|(\w+))", re.IGNORECASE)
_STATE = re.compile(r"^\[[A-Z_.]+\] |\.? *SQLSTATE: .*$")


def check_names(name: str, sql: str, columns: Iterable[str]) -> None:
    """Refuses a column of the row before or behind that is not there; needs no JVM.

    Args:
        name: the column that is filled.
        sql: its expression.
        columns: those of the rows.

    Raises:
        InputError: it is empty, or names a column that is not there.
    """
    known = list(columns)
    if not sql.strip():
        raise InputError(f'sql of column "{name}" is empty. {_may_be(known)}')
    lower = {column.lower() for column in known}
    for side, quoted, plain in _SIDE.findall(_TEXTS.sub("''", sql)):
        column = quoted or plain
        if column.lower() not in lower and not column.startswith("_rw_"):
            meant = did_you_mean(column, known)
            raise InputError(f'sql "{sql}" of column "{name}" names {side}.{column}. {meant}{_may_be(known)}')


def check_expression(made: DataFrame, name: str, sql: str, kind: DataType) -> None:
    """Refuses an expression that Spark cannot read over made rows, before anything is computed.

    Args:
        made: made rows with both of their sides.
        name: the column that is filled.
        sql: its expression.
        kind: the column's type.

    Raises:
        InputError: it is no SQL, names what is not there, or is of a type that the column cannot have.
    """
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql import functions as F

    try:
        _ = made.select(F.expr(sql).cast(kind)).schema
    except (AnalysisException, ParseException) as error:
        columns = [column for column in made.schema["previous"].dataType.names if not column.startswith("_rw_")]  # type: ignore[attr-defined]
        said = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise InputError(
            f'sql "{sql}" of column "{name}" cannot be computed', detail=f"{_STATE.sub('', said)}.",
            hint=f"{_may_be(columns)}.",
        ) from error  # fmt: skip


def _may_be(columns: list[str]) -> str:
    return f"There are previous.X and next.X, where X is one of {', '.join(columns)}"
