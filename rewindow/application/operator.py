"""The whole operator model: ports, properties, and FrameOperator (docs/rules/operators.md sections
2 and 3).

Properties are pydantic fields; they change what an operator computes. Attributes (mode, checkpoint
windows) are given where the operator is added to an application; they change how it is run (O23).
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
    """Where an operator receives tuples; the schema is the least specific one it needs (O44). None
    takes any.

    Attributes:
        key: of a tuple operator, the columns by which its tuples are keyed (X41).
        control: of a tuple operator, whether tuples come to every key range, before the end of
            their window (O132).
        broadcast: of a tuple operator, whether every partition gets all tuples of the port (O87).
        codec: how a key is hashed to find its partition: "xxhash64" (X47), which is the default, or
            "java", as Java's hashCode (O20, O85).
    """

    schema: pa.Schema | None = None
    optional: bool = False
    key: tuple[str, ...] = ()
    control: bool = False
    broadcast: bool = False
    codec: str | None = None

    @property
    def is_keyed(self) -> bool:
        """Whether its tuples are divided by their keys."""
        return not (self.control or self.broadcast)


@dataclass(frozen=True)
class OutputPort:
    """Where an operator emits tuples; an error port carries error tuples (O19).

    Of an error port `errors_max` bounds the error tuples of a window (O71); without it
    `replay.errors_max` does. A port that says nothing need not be connected, but one of an
    operator's ports should be (O15). Of a control port equal tuples of a window are one, as each
    key range may emit it (O133, X44); as an output they are recorded (O135). Of a report port the
    rows tell something about the tuples of other ports, such as how many there are: where nothing
    reads them they are neither computed nor counted, while dropped tuples are counted (O16).

    A `unifier` is a tuple operator that merges what the instances of the operator emit, before
    anything reads the port (O73, O74); "self" is another instance of the operator itself (O76). The
    schema is that of the partial results.
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
"""Columns of the rows that come back where tasks write what they emit: a row a file."""
PartSink = Callable[[Iterable[tuple[str, pa.Table]]], Iterator[pa.RecordBatch]]
"""Takes parts and rows of theirs, `window_id` and their columns, within a task; gives rows of
`WRITTEN`."""
Parts = Callable[
    [Mapping[str, pa.Schema], Callable[[PartSink], "DataFrame"]], Mapping[str, "DataFrame"]
]


def _each_time(name: str, make: Callable[[], DataFrame]) -> DataFrame:
    return make()


def _each_window(window: int) -> int:
    return window


@dataclass(frozen=True)
class OperatorContext:
    """What one call of an operator is about: consecutive windows, empty ones too, and under which
    mode.

    Attributes:
        grid: width and origin.
        windows: the windows that are computed, closed.
        mode: recovery mode under which they are computed (R3).
        operator: whose call it is, as application.operator; empty outside a replay.
        unordered: input ports on which the column `offset` names no order (X43, X51).
        followed: output ports whose order of emission another operator follows (O39).
        once: `once(name, make)` computes the frame that `make` returns once in a group, for whoever
            asks for the name: `transform` and `next_state` then read the same rows. Outside a
            replay each computes it.
        parts: `parts(schemas, make)` does so for the one pass of an operator, which gives rows of
            several parts, each with its columns. Tasks of the frame that `make` returns give their
            rows to the sink that it gets, which writes them to files. None outside a replay.
        windowing: the operator's application or sliding windows; a frame operator groups by
            `windowing.last_of` (X8).
        unseen: windows that the state has not seen, as closed pairs: those before a range that
            begins without a state, those that at most once has lost.
        ends: by operator, the window with which all that reaches it has ended, where the range
            reaches it (X21).
        checkpointed: the window of a checkpoint that was saved since the group before, or that was
            restored; else None.
        next_mark: returns the first window at or after a given one after which a checkpoint falls
            due, by its id (X7).
        reports_failing: whether a task reports the tuples at which `process` fails, in place of
            failing itself (R93).
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
        """Returns it without what belongs to the process that runs the group."""
        return replace(self, materialize=_each_time, parts=None)

    def is_partial(self, window: int) -> bool:
        """Returns whether windows are missing in the application window of a window (W23, R20, X8).

        The state lacks them, or the recording has ended before.
        """
        first = self.windowing.first_of(window)
        is_cut = window == self.end and not self.windowing.ends(window)
        return is_cut or any(begin <= window and end >= first for begin, end in self.unseen)

    def closes(self, window: int) -> bool:
        """Returns whether an application window ends with a window: also where the recording does,
        once (W18, W23).
        """
        cut = (
            self.end is not None
            and self.end < window
            and self.windowing.first_of(window) <= self.end
        )
        return window == self.end or (self.windowing.ends(window) and not cut)

    def partial_windows(self) -> list[int]:
        """Returns the ids of the partial application windows of the group: `windowing.last_of` of
        theirs (X8).
        """
        # A window that the state has not seen makes its whole application window partial. Those
        # that end before the group are of no interest, so the search starts one window before it.
        length = self.windowing.application
        last_of = self.windowing.last_of
        found: set[int] = set()
        for begin, end in self.unseen:
            first = last_of(max(begin, self.first - length + 1))
            found |= {*range(first, last_of(min(end, self.last)) + 1, length)}
        return sorted(window for window in found if window >= self.first)

    @property
    def end(self) -> int | None:
        """The window with which all that reaches the operator has ended; None where the range does
        not reach it.
        """
        return self.ends.get(self.operator.partition(".")[2])

    @property
    def ended_us(self) -> int | None:
        """The last instant of the recording for this operator, in microseconds, if it lies in these
        windows (X34).
        """
        return (
            self.grid.end_us(self.end) - 1
            if self.end is not None and self.end in self.windows
            else None
        )

    @property
    def first(self) -> int:
        """First window."""
        return self.windows.first

    @property
    def last(self) -> int:
        """Last window, included."""
        return self.windows.last

    @property
    def start_us(self) -> int:
        """Start of the first window, in microseconds since the epoch."""
        return self.grid.start_us(self.first)

    @property
    def end_us(self) -> int:
        """End of the last window (exclusive), in microseconds since the epoch."""
        return self.grid.end_us(self.last)

    def frame(self, spark: SparkSession) -> DataFrame:
        """Returns a frame with one column `window_id BIGINT` and a row for every window."""
        return spark.range(self.first, self.last + 1, 1, 1).withColumnRenamed("id", "window_id")


class FrameOperator(BaseModel):
    """An operator that computes all windows of a commit group at once on DataFrames.

    What it emits for a window must depend only on its state, its properties and the tuples of that
    window (R79); where a group ends must not show. Properties are checked when an operator is
    built, defaults too. Wrong ones do not raise there: they are reported with every other violation
    of the application at launch (O53, O60). A built operator is changed by `set_properties` only.

    With `may_be_cut = False` no checkpoint may fall inside one of its application windows (W50).

    `changeable` names the properties that `rewindow set` may change while a replay runs (X10);
    ports and state must not depend on them.

    With `reads_outside = True` it reads systems outside of Rewindow, such as a web service. Its
    windows, and those of all operators downstream, are not verifiable: gate and certificate mark
    them (R88).
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
        """Gives some properties another value; all are checked together, as if the operator were
        built anew.
        """
        windowing, placing = self._windowing, self._placing
        FrameOperator.__init__(self, **{**self._given, **properties})
        self._windowing, self._placing = windowing, placing

    def set_windowing(self, windowing: Windowing) -> None:
        """Stores the application windows that the application sets for this operator, so that
        `state_columns` may depend on them. The attributes are checked elsewhere.
        """
        self._windowing = windowing

    @property
    def placing(self) -> Placing:
        """How its tuples are divided between Spark tasks."""
        return self._placing

    def set_placing(self, placing: Placing) -> None:
        """Stores the partitions that the application sets for this operator."""
        self._placing = placing

    def wrong_placing(self) -> list[tuple[str, str]]:
        """Returns each rule that the partitions or unifiers violate, with a message."""
        if self._placing == AS_SPARK:
            return []
        return [("X55", "only a tuple operator has partitions, a partitioner or a spread")]

    def given_properties(self) -> Mapping[str, Any]:
        """Returns the properties that were given a value; the others have that of their class."""
        return self._given

    def wrong_properties(self) -> list[WrongProperty]:
        """Returns what is wrong with the properties (O53)."""
        return self._wrong

    def input_ports(self) -> Mapping[str, InputPort]:
        """Returns the input ports; override it where they depend on properties."""
        return self.inputs

    def output_ports(self) -> Mapping[str, OutputPort]:
        """Returns the output ports; override it where they depend on properties."""
        return self.outputs

    def state_columns(self) -> pa.Schema | None:
        """Returns the schema of the state frame, None for a stateless operator (W70)."""
        return self.state_schema

    def state_key_columns(self) -> tuple[str, ...]:
        """Returns the key by which a large state is cut into `state_buckets`; none: the whole row
        is the key (X47).
        """
        return tuple(self.state_key)

    @property
    def is_stateful(self) -> bool:
        """Whether anything is carried from window to window."""
        return self.state_columns() is not None

    def ordered_ports(self) -> Collection[str]:
        """Returns the input ports on which the recorded order of tuples decides results (X43)."""
        return ()

    def warnings(self) -> list[str]:
        """Returns what is odd about the properties but does not stop a run (O61)."""
        return []

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> Mapping[str, DataFrame] | DataFrame:
        """Returns the frames of the output ports; a single frame where there is one port.

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
        """Returns the state after the group's last window; with `state_increments` only the rows of
        keys that changed.

        A row of a key that is no longer in the state then has a column `_rw_gone`, which is true.

        `outputs` are read back from the files that were written, so that an output and a state come
        from one run of the operator. With `state_reads_outputs = False` they are not to be read: a
        port that nothing else reads is then counted and never written. Only called for a stateful
        operator.
        """
        raise NotImplementedError

    def state_after_skip(
        self,
        state: DataFrame,
        windows: WindowRange,
        outputs: Mapping[str, DataFrame],
    ) -> DataFrame:
        """Returns the state with which to go on after an at-most-once skip; by default the one that
        was restored.

        Args:
            state: the state that was restored.
            windows: the skipped ones, which it has not seen and never will.
            outputs: what this operator had emitted for some of them all the same, per port that is
                an output.
        """
        return state

    def dropped_by_skip(
        self,
        state: DataFrame,
        windows: WindowRange,
        outputs: Mapping[str, DataFrame],
    ) -> DataFrame | None:
        """Returns how many tuples `state_after_skip` drops for good: `window_id` and `tuples`, a
        row per window (X3).

        They waited in the state, so their windows lie before the skipped ones, and `outputs` does
        not hold them. An operator whose state holds no tuples drops none: None.
        """
        return None

    def migrate_state(self, version: int, rows: pa.Table) -> pa.Table | None:
        """Returns the rows of a state that another version of this operator has saved, as this one
        has them.

        Asked where a replay begins with such a state and other code is allowed; all its rows are in
        memory then.

        Args:
            version: `state_version` of the operator that has saved them.
            rows: with the columns that it had.

        Returns:
            Rows with the columns of `state_columns`; None, by default, where nothing can be made of
            them.
        """
        return None

    def initial_state(self) -> pa.Table:
        """Returns the state before the first window (W63); by default no rows."""
        schema = self.state_columns()
        assert schema is not None, "only a stateful operator has an initial state"
        return schema.empty_table()
