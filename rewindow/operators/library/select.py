"""Select: filters tuples, and chooses and computes columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

import pyarrow as pa
from pydantic import Field, model_validator

from rewindow.application import OperatorContext, OutputPort
from rewindow.operators.columns import WINDOW
from rewindow.operators.library.columns import ROWS, ColumnsOperator, check_twice
from rewindow.sequences import names_of
from rewindow.spark.columns import named_columns
from rewindow.spark.functions import F
from rewindow.storage.fields import type_named

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class Select(ColumnsOperator):
    """Filters tuples, chooses and computes columns, and turns the items of a list into tuples.

    `where` and `expressions` are SQL over the columns of the input. Each expression that is not
    just the name of a column needs its type in `types`, because Rewindow must know the columns of
    every port before it starts Spark.

    Attributes:
        where: a condition; tuples for which it is false or null are left out.
        keep: columns of the input to keep; by default all.
        expressions: SQL expression of each further column; a column of the same name is replaced.
        types: SQL type of each expression, such as "double" or "array<string>".
        explode: a column with lists. Each item becomes a tuple, in which it replaces the list; an
            empty list yields no tuple.

    Rules: O109 to O112, O125
    """

    where: str | None = None
    keep: tuple[str, ...] | None = None
    expressions: dict[str, str] = Field(default_factory=dict)
    types: dict[str, str] = Field(default_factory=dict)
    explode: str | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.where is not None:
            self.check_sql("where", self.where)
        self.check_known("keep", self.keep or ())
        for name, sql in self.expressions.items():
            # A column's name may have characters that SQL would read as something else.
            if sql not in self.columns.names:
                self.check_sql(f"expressions.{name}", sql)
        for name in self.types:
            if name not in self.expressions:
                raise ValueError(f'types.{name}: expressions has no "{name}"')
        kinds = self._kinds()
        check_twice("expressions", kinds)
        if self.explode is not None:
            if self.explode not in kinds:
                raise ValueError(f'explode: "{self.explode}" is not a column of the output')
            if not pa.types.is_list(kinds[self.explode]):
                raise ValueError(
                    f'explode: column "{self.explode}" must be a list, not {kinds[self.explode]}'
                )
        return self

    def output_ports(self) -> Mapping[str, OutputPort]:
        """Returns the port `out`."""
        kinds = self._kinds()
        if self.explode is not None:
            kinds[self.explode] = kinds[self.explode].value_type
        return {"out": OutputPort(pa.schema(list(kinds.items())))}

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> DataFrame:
        """Returns the tuples that are kept, with their columns."""
        rows = self.passed(inputs[ROWS])
        if self.where is not None:
            rows = rows.where(F.expr(self.where))
        columns: list[Column] = []
        for name, kind in self._kinds().items():
            columns.append(self._column(name, kind))
        selected = rows.select(WINDOW, *columns)
        if self.explode is None:
            return selected
        [items] = named_columns([self.explode])
        return selected.withColumn(self.explode, F.explode(items))

    def _column(self, name: str, kind: pa.DataType) -> Column:
        from pyspark.sql.pandas.types import from_arrow_type

        if name not in self.expressions:
            return named_columns([name])[0].alias(name)
        sql = self.expressions[name]
        # The cast guarantees the declared type. Spark may choose another one, such as for
        # `number * 2`.
        value = named_columns([sql])[0] if sql in self._input_kinds() else F.expr(sql)
        return value.cast(from_arrow_type(kind)).alias(name)

    def _input_kinds(self) -> dict[str, pa.DataType]:
        schema = self.event_columns()
        return dict(zip(schema.names, schema.types, strict=True))

    def _kinds(self) -> dict[str, pa.DataType]:
        """Returns the type of each column before `explode`."""
        known = self._input_kinds()
        kept = names_of(self.event_columns()) if self.keep is None else self.keep
        kinds = {name: known[name] for name in kept}
        for name, sql in self.expressions.items():
            kind = known.get(sql)
            if name in self.types:
                kind = type_named(self.types[name])
                if kind is None:
                    raise ValueError(f'types.{name}: "{self.types[name]}" is not a type')
            if kind is None:
                raise ValueError(
                    f'types.{name}: set the type of the expression "{sql}", such as "double"'
                )
            kinds[name] = kind
        return kinds
