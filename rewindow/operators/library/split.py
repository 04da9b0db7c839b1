"""Split, Union and Sample: divide, combine and sample streams without changing the values of
tuples.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Self

import pyarrow as pa
from pydantic import Field, model_validator

from rewindow.application import InputPort, OperatorContext, OutputPort
from rewindow.operators.library.columns import ROWS, ColumnsOperator, check_twice
from rewindow.spark.columns import in_sample, or_false, union_all
from rewindow.spark.functions import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

REST = "rest"


class Split(ColumnsOperator):
    """Sends each tuple to the port of the first condition that is true.

    If no condition is true, the tuple is sent to `rest`.

    Attributes:
        conditions: SQL condition of each output port, checked in the order of the ports.
        every: whether a tuple goes to the ports of all conditions that are true.

    Rules: O124
    """

    conditions: Annotated[dict[str, str], Field(min_length=1)]
    every: bool = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        for port, condition in self.conditions.items():
            self.check_sql(f"conditions.{port}", condition)
            if port in (REST, ROWS):
                raise ValueError(
                    f'conditions.{port}: "{port}" is the name of a built-in port; choose another '
                    "name"
                )
        return self

    def output_ports(self) -> Mapping[str, OutputPort]:
        """Returns a port for each condition, and `rest`."""
        return dict.fromkeys([*self.conditions, REST], OutputPort(self.event_columns()))

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> Mapping[str, DataFrame]:
        """Returns the tuples of each port."""
        rows = self.passed(inputs[ROWS])
        ports = {}
        # Null counts as false, so that every tuple is in at least one port.
        no_other: Column = F.lit(True)
        for port, sql in self.conditions.items():
            condition = or_false(F.expr(sql))
            ports[port] = rows.where(condition if self.every else condition & no_other)
            no_other &= ~condition
        ports[REST] = rows.where(no_other)
        return ports


class Union(ColumnsOperator):
    """Combines streams with the same columns; `Merge` combines them in the order of event time.

    Attributes:
        ports: names of the input ports. Columns that the first input does not have are left out.
        source: name of a further column with the input port of the tuple.

    Rules: O124
    """

    ports: Annotated[tuple[str, ...], Field(min_length=2)] = ("left", "right")
    source: str | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(set(self.ports)) < len(self.ports):
            raise ValueError(f"ports: names must be different, not {', '.join(self.ports)}")
        check_twice("source", self.output_ports()["out"].schema.names)
        return self

    def input_ports(self) -> Mapping[str, InputPort]:
        """Returns a port for each of `ports`."""
        return dict.fromkeys(self.ports, InputPort(self.event_columns()))

    def output_ports(self) -> Mapping[str, OutputPort]:
        """Returns the port `out`."""
        source = [(self.source, pa.string())] if self.source else []
        return {"out": OutputPort(pa.schema([*self.event_columns(), *source]))}

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> DataFrame:
        """Returns the tuples of all ports."""
        frames = []
        for port in self.ports:
            frame = self.passed(inputs[port])
            frames.append(frame.withColumn(self.source, F.lit(port)) if self.source else frame)
        return union_all(frames)


class Sample(ColumnsOperator):
    """Passes on all tuples of a sample of the keys. The sample is the same in every window and in
    every replay; a larger fraction only adds keys.

    Attributes:
        fraction: fraction of the keys, more than 0 and at most 1.
        key: the columns that form the key.

    Rules: O126, O143
    """

    fraction: Annotated[float, Field(gt=0, le=1)]
    key: Annotated[tuple[str, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.check_known("key", self.key)
        return self

    def output_ports(self) -> Mapping[str, OutputPort]:
        """Returns the port `out`."""
        return {"out": OutputPort(self.event_columns())}

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> DataFrame:
        """Returns the tuples whose key is in the sample."""
        return self.passed(inputs[ROWS]).where(in_sample(self.key, self.fraction))
