"""The columns of a library operator follow from its input.

All properties and SQL that name columns are checked.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from rewindow.application import FrameOperator, InputPort
from rewindow.names import BOOKKEEPING, did_you_mean
from rewindow.operators.columns import WINDOW, Columns
from rewindow.sequences import names_of, not_named, repeated_names
from rewindow.spark.columns import named_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS = "rows"
"""Name of the only input port."""
_TOKEN = re.compile(
    r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`(?P<quoted>[^`]+)`"
    r"|(?P<word>[A-Za-z_]\w*)(?P<field>(?:\s*\.\s*\w+)*)\s*(?P<call>\()?|[\d.]+\w*|->|\S"
)
_WORDS = re.compile(
    r"and|or|not|is|null|true|false|in|like|rlike|ilike|regexp|between|case|when|then|"
    r"else|end|as|cast|distinct|from|escape|div|interval|year|years|quarter|month|months|"
    r"week|weeks|day|days|hour|hours|minute|minutes|second|seconds|millisecond|"
    r"milliseconds|microsecond|microseconds|date|timestamp|timestamp_ntz|timestamp_ltz|"
    r"string|boolean|tinyint|smallint|short|int|integer|bigint|long|float|real|double|"
    r"decimal|dec|numeric|binary|array|map|struct|any|some|all|both|leading|trailing|for"
)
_CHANGING = re.compile(
    r"current_date|current_time|current_timestamp|current_user|input_file_name|"
    r"localtimestamp|monotonically_increasing_id|now|rand|randn|random|shuffle|"
    r"spark_partition_id|uuid|over"
)
"""Functions whose values differ from run to run, and window functions, which would see where a
commit group ends."""


class ColumnsOperator(FrameOperator):
    """An operator whose output columns follow from the columns of its input, `columns`.

    In an application without code, Rewindow sets `columns` to the columns of the stream at the
    first input port.
    """

    columns: Columns

    def input_ports(self) -> Mapping[str, InputPort]:
        """Returns the port `rows`."""
        return {ROWS: InputPort(self.event_columns())}

    def event_columns(self) -> pa.Schema:
        """Returns the input columns that are passed on: all except the position and the window of a
        tuple.
        """
        return pa.schema(not_named(self.columns, BOOKKEEPING))

    def check_known(self, property_name: str, names: Iterable[str]) -> None:
        """Rejects names that are not columns of the input.

        Raises:
            ValueError: a name is unknown; the message names the property and the first such name.
        """
        known = names_of(self.event_columns())
        for name in names:
            if name not in known:
                raise ValueError(
                    f'{property_name}: the input has no column "{name}". '
                    f"{did_you_mean(name, known)}Available columns: {', '.join(known)}"
                )

    def check_sql(self, property_name: str, sql: str, known: Iterable[str] = ()) -> None:
        """Rejects SQL that names unknown columns or whose value changes from run to run.

        Args:
            property_name: name of the property with the expression, for the message.
            sql: the expression.
            known: names that the expression may use; by default, the columns of the input.

        Raises:
            ValueError: the SQL is wrong; the message names the property and the error.
        """
        if not sql.strip():
            raise ValueError(f"{property_name}: the expression is empty")
        names = known or names_of(self.event_columns())
        changing, unknown = _doubtful(sql, {name.lower() for name in names})
        if changing:
            raise ValueError(
                f'{property_name}: "{changing[0]}" cannot be used, because its value differs '
                "between replays: use only columns of the tuples"
            )
        if known and unknown:
            raise ValueError(
                f"{property_name}: the expression can only use {' and '.join(known)}, not "
                f'"{unknown[0]}"'
            )
        self.check_known(property_name, unknown)

    def check_time(self, property_name: str, name: str) -> None:
        """Rejects a column that is unknown or does not contain timestamps.

        Raises:
            ValueError: the message names the property and the column.
        """
        self.check_known(property_name, [name])
        kind = self.columns.field(name).type
        if not pa.types.is_timestamp(kind):
            raise ValueError(f'{property_name}: column "{name}" must be a timestamp, not {kind}')

    def passed(self, frame: DataFrame) -> DataFrame:
        """Returns the window and the event columns of an input's tuples."""
        return frame.select(*named_columns([WINDOW, *names_of(self.event_columns())]))


def check_twice(property_name: str, names: Iterable[str]) -> None:
    """Rejects output columns whose names are equal or differ only in case.

    Raises:
        ValueError: there are such columns; the message names the property and the columns.
    """
    twice = repeated_names(names)
    if twice:
        raise ValueError(
            f"{property_name}: column {', '.join(twice)} would appear twice in the output"
        )


def _doubtful(sql: str, known: Container[str]) -> tuple[list[str], list[str]]:
    """Returns the names in an expression that change from run to run, and the unknown names.

    The function only scans the words. Spark parses the whole expression in the replay.
    """
    changing = []
    unknown = []
    for token in _TOKEN.finditer(sql):
        name = token["quoted"] or token["word"]
        if name is None or name.lower() in known:
            continue
        if token["word"] and _CHANGING.fullmatch(name.lower()):
            changing.append(name)
        elif token["quoted"] or not (token["call"] or _WORDS.fullmatch(name.lower())):
            unknown.append(name)
    # The parameters of a lambda function are names too, but not columns.
    return changing, [] if "->" in sql else unknown
