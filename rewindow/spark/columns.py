"""Lists of Spark columns, without an import of pyspark until one is built."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from rewindow.names import quoted_column

if TYPE_CHECKING:
    from pyspark.sql import Column


def named_columns(names: Iterable[str]) -> list[Column]:
    """Returns the columns of these names, whatever characters the names contain."""
    from pyspark.sql import functions as F

    return [F.col(quoted_column(name)) for name in names]


def aliased(columns: Mapping[str, Column]) -> list[Column]:
    """Returns the columns under the names that they are mapped from."""
    return [column.alias(name) for name, column in columns.items()]
