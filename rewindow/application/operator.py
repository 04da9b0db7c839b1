"""The operator model: ports, properties, and the base class FrameOperator (docs/rules/operators.md
sections 2 and 3).

Properties are pydantic fields; they change the results of an operator. Attributes (mode, checkpoint
windows) are set when the operator is added to an application; they change how it is run.

Rules: O23
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError

from rewindow.application.modes import Mode
from rewindow.application.placing import AS_SPARK, Placing
from rewindow.application.properties import WrongProperty, wrong_properties
from rewindow.application.windowing import EVERY_WINDOW, Windowing
from rewindow.errors import InputError
from rewindow.windows import Grid, WindowRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class InputPort:
    """A port where an operator receives tuples.

    Attributes:
        schema: the columns that the operator needs, by name and type; tuples may have more. None
            accepts any.
        key: for a tuple operator, the columns by which its tuples are divided between tasks.
        control: for a tuple operator, whether each tuple goes to every key range, before the end of
            its window.
        broadcast: for a tuple operator, whether each tuple goes to every partition.
        codec: the hash that maps a key to its partition: "xxhash64", the default, or "java" for
            Java's hashCode.

    Rules: O20, O44, O85, O87, O132, X41, X47
    """

    schema: pa.Schema | None = None
    optional: bool = False
    key: tuple[str, ...] = ()
    control: bool = False
    broadcast: bool = False
    codec: str | None = None

    @property
    def is_keyed(self) -> bool:
        """Whether the tuples of the port are divided by their keys."""
        return not (self.control or self.broadcast)


@dataclass(frozen=True)
class OutputPort:
    """A port where an operator emits tuples.

    A port need not be connected, but at least one port of an operator should be. With
    `optional=False`, the port must be connected.

    Attributes:
        error: whether it is an error port, which carries error tuples.
        errors_max: the most error tuples in a window, None for the setting `replay.errors_max`.
        control: whether equal tuples of a window are merged into one, since each key range may emit
            the same tuple. As an output they are recorded.
        report: whether its rows only describe the tuples of other ports, such as their counts. If
            nothing reads them, they are neither computed nor counted, unlike dropped tuples.
        unifier: a tuple operator that merges the partial results of the operator's instances before
            they are read; "self" is another instance of the operator itself. The schema is that of
            the partial results.

    Rules: O15, O16, O19, O71, O73, O74, O76, O133, O135, X44
    """

    schema: pa.Schema
    optional: bool | None = None
    error: bool = False
    control: bool = False
    errors_max: int | None = None
    report: bool = False
    unifier: FrameOperator | str | None = None


WRITTEN = pa.schema(
    [("part", pa.string()), ("file", pa.string()), ("rows", pa.int64()), ("host", pa.string())]
)
"""Columns of the rows that tasks return after writing their emitted tuples to files: one row per
file."""
PartSink = Callable[[Iterable[tuple[str, pa.Table]]], Iterator[pa.RecordBatch]]
"""A function that runs in a task. It receives the name of a part and a table of its rows
(`window_id`, then columns), writes them to files, and yields rows of `WRITTEN`."""
Parts = Callable[
    [Mapping[str, pa.Schema], Callable[[PartSink], "DataFrame"]], Mapping[str, "DataFrame"]
]


def _each_time(name: str, make: Callable[[], DataFrame]) -> DataFrame:
    return make()


def _each_window(window: int) -> int:
    return window


@dataclass(frozen=True)
class OperatorContext:
    """The context of one call of an operator.

    It has the windows to compute, including empty ones, the recovery mode, and services of the
    engine.

    Attributes:
        grid: width and origin of the windows.
        windows: the windows to compute, closed.
        mode: recovery mode under which they are computed.
        operator: full name of the operator, as application.operator; empty outside of a replay.
        unordered: input ports without a recorded order, where the column `offset` is meaningless.
        followed: output ports whose order of emission another operator relies on.
        materialize: `materialize(name, make)` computes the frame that `make` returns once per
            group, for all callers with the same name, so that `transform` and `next_state` read the
            same rows. Outside of a replay each call computes it.
        parts: `parts(schemas, make)` does the same for the single pass of an operator that emits
            rows of several parts, each with separate columns. Tasks of the frame that `make`
            returns pass their rows to a sink, which writes them to files. None outside of a replay.
        windowing: the operator's application or sliding windows; a frame operator groups by
            `windowing.last_of`.
        unseen: windows that are missing from the state, as closed pairs: those before the range if
            it starts without a state, and those that at most once has lost.
        ends: operator name to the window with which all its upstream streams have ended, for ends
            within the range.
        checkpointed: the window of a checkpoint that was saved or restored since the last group;
            otherwise None.
        next_mark: returns the id of the first window, at or after the given one, after which a
            checkpoint is due.
        reports_failing: whether a task reports the tuples for which `process` fails, instead of
            failing itself.

    Rules: O39, R3, R93, X7, X8, X21, X43, X51
    """

    grid: Grid
    windows: WindowRange
    mode: Mode = Mode.EXACTLY_ONCE
    operator: str = ""
    unordered: frozenset[str] = frozenset()
    followed: frozenset[str] = frozenset()
    materialize: Callable[[str, Callable[[], DataFrame]], DataFrame] = field(
        default=_each_time,
        compare=False,
        repr=False,
    )
    parts: Parts | None = field(default=None, compare=False, repr=False)
    windowing: Windowing = EVERY_WINDOW
    unseen: tuple[tuple[int, int], ...] = ()
    ends: Mapping[str, int] = field(default_factory=dict)
    checkpointed: int | None = None
    next_mark: Callable[[int], int] = field(
        default=_each_window,
        compare=False,
        repr=False,
    )
    reports_failing: bool = False

    def alone(self) -> OperatorContext:
        """Returns the context for use in tasks, without the services of the process that runs the
        group.
        """
        return replace(self, materialize=_each_time, parts=None)

    def is_partial(self, window: int) -> bool:
        """Returns whether windows are missing from the application window that contains a given
        window.

        They are missing from the state, or the recording ended earlier.

        Rules: R20, W23, X8
        """
        first = self.windowing.first_of(window)
        is_cut = window == self.end and not self.windowing.ends(window)
        return is_cut or any(begin <= window and end >= first for begin, end in self.unseen)

    def closes(self, window: int) -> bool:
        """Returns whether an application window ends with the given window.

        If the recording ends inside the last application window, that window is closed early, once.

        Rules: W18, W23
        """
        cut = (
            self.end is not None
            and self.end < window
            and self.windowing.first_of(window) <= self.end
        )
        return window == self.end or (self.windowing.ends(window) and not cut)

    def partial_windows(self) -> list[int]:
        """Returns the group's partial application windows, by the id of their last window.

        Rules: X8
        """
        # A window that is missing from the state makes its whole application window partial.
        # Application windows that end before the group do not matter, so the search starts
        # one application window before the group.
        length = self.windowing.application
        last_of = self.windowing.last_of
        partial: set[int] = set()
        for begin, end in self.unseen:
            first = last_of(max(begin, self.first - length + 1))
            partial |= {*range(first, last_of(min(end, self.last)) + 1, length)}
        return sorted(window for window in partial if window >= self.first)

    @property
    def end(self) -> int | None:
        """The window with which all upstream streams of the operator have ended; None if it is not
        in the range.
        """
        return self.ends.get(self.operator.partition(".")[2])

    @property
    def ended_us(self) -> int | None:
        """The last microsecond of the recording for this operator, since the epoch; None if it is
        not in these windows.

        Rules: X34
        """
        return (
            self.grid.end_us(self.end) - 1
            if self.end is not None and self.end in self.windows
            else None
        )

    @property
    def first(self) -> int:
        """The first window."""
        return self.windows.first

    @property
    def last(self) -> int:
        """The last window, which is included."""
        return self.windows.last

    @property
    def start_us(self) -> int:
        """The start of the first window, in microseconds since the epoch."""
        return self.grid.start_us(self.first)

    @property
    def end_us(self) -> int:
        """The end of the last window (exclusive), in microseconds since the epoch."""
        return self.grid.end_us(self.last)

    def frame(self, spark: SparkSession) -> DataFrame:
        """Returns a frame with the column `window_id BIGINT` and one row for every window."""
        return spark.range(self.first, self.last + 1, 1, 1).withColumnRenamed("id", "window_id")


class FrameOperator(BaseModel):
    """An operator that computes all windows of a commit group at once on DataFrames.

    The tuples that it emits for a window must depend only on its state, its properties and the
    tuples of that window; they must not depend on where a group ends.

    Properties are checked when an operator is built, including defaults. Invalid ones do not raise
    an exception there: they are reported at launch with all other violations of the application.
    After that, properties are changed only by `set_properties`.

    Attributes:
        may_be_cut: if False, no checkpoint may be saved inside one of its application windows.
        changeable: names of the properties that `rewindow set` may change while a replay runs;
            ports and state must not depend on them.
        reads_outside: if True, it reads external systems, such as a web service. Its windows, and
            those of all operators downstream, cannot be verified; gate and certificate mark them.

    Rules: O53, O60, R79, R88, W50, X10
    """

    model_config = ConfigDict(
        extra="forbid",
        arbitrary_types_allowed=True,
        validate_default=True,
        frozen=True,
    )

    inputs: ClassVar[Mapping[str, InputPort]] = {}
    outputs: ClassVar[Mapping[str, OutputPort]] = {}
    state_schema: ClassVar[pa.Schema | None] = None
    state_version: ClassVar[int] = 1
    state_key: ClassVar[Sequence[str]] = ()
    state_buckets: ClassVar[int] = 16
    state_increments: ClassVar[bool] = False
    state_reads_outputs: ClassVar[bool] = True
    changeable: ClassVar[Collection[str]] = ()
    called_by_tuples: ClassVar[bool] = False
    delays: ClassVar[bool] = False
    may_be_cut: ClassVar[bool] = True
    ends_streams: ClassVar[bool] = False
    writes_outside: ClassVar[bool] = False
    reads_outside: ClassVar[bool] = False
    _given: dict[str, Any] = PrivateAttr()
    _wrong: list[WrongProperty] = PrivateAttr()
    _windowing: Windowing = PrivateAttr(default=EVERY_WINDOW)
    _placing: Placing = PrivateAttr(default=AS_SPARK)

    def __init__(self, **properties: Any) -> None:
        wrong = []
        try:
            super().__init__(**properties)
        except (ValidationError, InputError) as error:
            self.__setstate__(type(self).model_construct(**properties).__getstate__())
            wrong = wrong_properties(error, properties, type(self).model_fields)
        self._given = properties
        self._wrong = wrong

    def set_properties(self, **properties: Any) -> None:
        """Changes several properties.

        They are validated together, as if a new operator were created.
        """
        windowing, placing = self._windowing, self._placing
        FrameOperator.__init__(self, **{**self._given, **properties})
        self._windowing, self._placing = windowing, placing

    def set_windowing(self, windowing: Windowing) -> None:
        """Stores the application windows that the application sets for this operator, so that
        `state_columns` can depend on them.

        `validation` checks the attributes.
        """
        self._windowing = windowing

    @property
    def placing(self) -> Placing:
        """How the operator's tuples are divided between Spark tasks."""
        return self._placing

    def set_placing(self, placing: Placing) -> None:
        """Stores the partitions that the application sets for this operator."""
        self._placing = placing

    def wrong_placing(self) -> list[tuple[str, str]]:
        """Returns a message for each rule that the partitions or unifiers violate."""
        if self._placing == AS_SPARK:
            return []
        return [("X55", "only a tuple operator has partitions, a partitioner or a spread")]

    def given_properties(self) -> Mapping[str, Any]:
        """Returns the properties that were passed explicitly.

        All others have the default of their class.
        """
        return self._given

    def wrong_properties(self) -> list[WrongProperty]:
        """Returns the properties with invalid values.

        Rules: O53
        """
        return self._wrong

    def input_ports(self) -> Mapping[str, InputPort]:
        """Returns the input ports. Override this method if the ports depend on properties."""
        return self.inputs

    def output_ports(self) -> Mapping[str, OutputPort]:
        """Returns the output ports. Override this method if the ports depend on properties."""
        return self.outputs

    def state_columns(self) -> pa.Schema | None:
        """Returns the schema of the state frame; None for a stateless operator.

        Rules: W70
        """
        return self.state_schema

    def state_key_columns(self) -> tuple[str, ...]:
        """Returns the key by which a large state is divided into `state_buckets`.

        An empty key means the whole row.

        Rules: X47
        """
        return tuple(self.state_key)

    @property
    def is_stateful(self) -> bool:
        """Whether the operator keeps a state between windows."""
        return self.state_columns() is not None

    def ordered_ports(self) -> Collection[str]:
        """Returns the input ports for which the results depend on the recorded order of tuples.

        Rules: X43
        """
        return ()

    def warnings(self) -> list[str]:
        """Returns problems with the properties that do not stop a run.

        Rules: O61
        """
        return []

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> Mapping[str, DataFrame] | DataFrame:
        """Returns the frames of the output ports by name.

        An operator with one port can return a single frame.

        Args:
            inputs: a frame per connected input port: `window_id`, then its columns.
            state: the state after the window before the group, None for a stateless operator.
            context: the group's windows, the recovery mode and the operator's name.
        """
        raise NotImplementedError

    def next_state(
        self,
        inputs: Mapping[str, DataFrame],
        outputs: Mapping[str, DataFrame],
        state: DataFrame,
        context: OperatorContext,
    ) -> DataFrame:
        """Returns the state after the group's last window. With `state_increments`, returns only
        the rows of changed keys.

        With `state_increments`, a row whose key was removed from the state has a column `_rw_gone`
        with the value true.

        The method is only called for a stateful operator. `outputs` are read from the files that
        were written, so that output and state come from one run of the operator. With
        `state_reads_outputs = False` the method must not read `outputs`. Then a port without other
        readers is counted and never written.
        """
        raise NotImplementedError

    def state_after_skip(
        self,
        state: DataFrame,
        windows: WindowRange,
        outputs: Mapping[str, DataFrame],
    ) -> DataFrame:
        """Returns the state for the window after an at-most-once skip.

        By default, this is the restored state.

        Args:
            state: the restored state.
            windows: the skipped windows, which are missing from the state and are never computed.
            outputs: tuples that this operator had emitted for some of them before the crash, by the
                port of each output.
        """
        return state

    def dropped_by_skip(
        self,
        state: DataFrame,
        windows: WindowRange,
        outputs: Mapping[str, DataFrame],
    ) -> DataFrame | None:
        """Returns the numbers of tuples that `state_after_skip` drops; None if the state contains
        no tuples.

        The result has one row (window_id, tuples) per window. The tuples waited in the state, so
        they belong to windows before the skipped ones, and are not in `outputs`.

        Rules: X3
        """
        return None

    def migrate_state(self, version: int, rows: pa.Table) -> pa.Table | None:
        """Converts the rows of a state that another version of this operator has saved to the
        columns of this version.

        The method is called if a replay starts with such a state and the request allows other code.
        All rows are in memory.

        Args:
            version: `state_version` of the operator that saved them.
            rows: the saved rows, with the columns of that version.

        Returns:
            Rows with the columns of `state_columns`; None, the default, if a conversion is not
            possible.
        """
        return None

    def initial_state(self) -> pa.Table:
        """Returns the state before the first window.

        By default, this is a table without rows.

        Rules: W63
        """
        schema = self.state_columns()
        assert schema is not None, "only a stateful operator has an initial state"
        return schema.empty_table()
