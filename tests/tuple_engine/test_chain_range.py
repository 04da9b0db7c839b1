"""A chain in one key range: it runs batch by batch, with the same results as separate passes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewindow.application import Application, InputPort, OperatorContext, OutputPort
from rewindow.operators import StateField, TupleOperator
from rewindow.recovery import CheckpointSchedule
from rewindow.testing import run_application
from rewindow.testing.passes import PassRun
from rewindow.tuple_engine.chain_range import ForeignTuples, raised_by
from rewindow.tuple_engine.chains import units_of
from rewindow.tuple_engine.emission_order import EmissionOrder
from rewindow.tuple_engine.passes import Pass
from rewindow.tuple_engine.tagged_rows import SORT_KEY, sort_key
from rewindow.windows import Grid, WindowRange
from tests.recovery.applications import tuple_chain
from tests.recovery.applications.tuple_chain import EVENTS, Folds

LAST = 7
TUPLES = st.lists(st.tuples(st.sampled_from("abc"), st.integers(-9, 9)), max_size=6)


def passes(app: Application) -> list[Pass]:
    order = EmissionOrder(app)
    return [Pass.of(unit, followed=order.followed) for unit in units_of(app) if len(unit) > 1]


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(st.integers(0, LAST), TUPLES),
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(1, LAST + 1),
)
def test_chain_has_the_same_results_and_states_as_separate_passes(
    events: dict[int, list[tuple[str, int]]],
    key_ranges: int,
    batch: int,
    group_windows: int,
) -> None:
    # Rules: O97, O39
    app = tuple_chain.build()
    apart = run_application(app, {"events": events}, windows=(0, LAST), group_windows=LAST + 1)
    controls = {}
    for window, day in apart.ports["closes.out"]:
        controls[window] = [(day,)]
    schedule = CheckpointSchedule(app.checkpoint_windows, app.checkpoint_multiple)
    for one in passes(app):
        run = PassRun(one, key_ranges, batch)
        states = run.initial_states()
        found: dict[str, list[Any]] = {}
        for first in range(0, LAST + 1, group_windows):
            windows = WindowRange(first, min(first + group_windows - 1, LAST))
            context = OperatorContext(
                app.grid,
                windows,
                operator=app.name,
                next_mark=schedule.next_due,
                unseen=((-LAST, -1),),
            )
            given_rows = dict.fromkeys(one.inputs, events)
            given_rows |= dict.fromkeys(one.controls, controls)
            emitted, states = run.compute(context, given_rows, states)
            for place, rows in emitted.items():
                of_port = found.setdefault(".".join(place), [])
                of_port += [(row.window, *row.values) for row in rows]
        for port, rows in found.items():
            # Rows of a key have one order; those of several keys come range by range.
            for key in ("a", "b", "c", None):
                of_key = [row for row in rows if row[1] == key]
                assert of_key == [row for row in apart.ports[port] if row[1] == key], port
        for name in one.members:
            assert run.readable(name, states) == apart.states.get(name, {}), name


class Notes(TupleOperator):
    """Emits its tuples again, and records them."""

    inputs: ClassVar = {"rows": InputPort(EVENTS, key=("key",))}
    outputs: ClassVar = {"out": OutputPort(EVENTS)}
    notes: ClassVar[list[str]] = []
    name: str
    fails: bool = False
    seen = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]

    def setup(self) -> None:
        self.notes.append(f"{self.name} setup")

    def teardown(self) -> None:
        self.notes.append(f"{self.name} teardown")

    def process(self, row: Any) -> None:
        self.seen += 1
        self.notes.append(f"{self.name} {row.x}")
        if self.fails and row.x == 2:
            raise ValueError("on purpose")
        for _ in range(3):
            self.emit("out", row.key, row.x)


def noted(**fails: bool) -> tuple[Pass, list[str], Iterator[pa.RecordBatch]]:
    """Returns a chain of three operators, its notes, and its results for four batches."""
    app = Application("noted", window="1 s")
    end: Any = app.input("events")
    Notes.notes.clear()
    for name in ("one", "two", "three"):
        end = app.add(name, Notes(name=name, fails=fails.get(name, False)), rows=end)["out"]
    [one] = passes(app)
    context = OperatorContext(Grid(1000), WindowRange(0, 0), operator="noted")

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(4):
            Notes.notes.append(f"batch {number}")
            place = pa.array([sort_key(0, 1, -1)])
            columns = one.inputs["one", "rows"].names
            rows = [place, pa.array(["a"]), pa.array([number], pa.int64())]
            yield pa.RecordBatch.from_arrays(rows, names=[SORT_KEY, *columns])

    return one, Notes.notes, one.run(context, batches())


def test_chain_reader_receives_each_batch_before_the_next_batch_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Rules: O97
    monkeypatch.setattr("rewindow.tuple_engine.emissions.BATCH", 1)
    _, notes, made = noted()
    for _ in made:
        continue
    assert notes.index("three 2") < notes.index("batch 3")
    assert notes[-3:] == ["one teardown", "two teardown", "three teardown"]


def test_chain_passes_on_slices_of_a_large_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    # Rules: O97
    for module in ("emissions", "chain_range"):
        monkeypatch.setattr(f"rewindow.tuple_engine.{module}.BATCH", 2)
    _, _, made = noted()
    sizes = [batch.num_rows for batch in made]
    assert max(sizes) <= 6, "two tuples of a reader become six"


def test_error_in_a_chain_names_its_operator_and_closes_all_operators(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Rules: O97, O35
    monkeypatch.setattr("rewindow.tuple_engine.emissions.BATCH", 1)
    _, notes, made = noted(two=True)
    with pytest.raises(ValueError, match="on purpose") as raised:
        list(made)
    named = [note for note in raised.value.__notes__ if note.startswith("raised by")]
    assert named == [raised_by("two")]
    assert notes[-3:] == ["one teardown", "two teardown", "three teardown"]


class Strays(Folds):
    """Emits while no key is selected, in one of the callbacks."""

    callback: str

    def begin_window(self, window_id: int) -> None:
        if self.callback == "begin_window":
            self.emit("out", "a", 1)

    def process(self, row: Any) -> None:
        if self.callback == "process":
            self.emit("out", row.key + "b", 1)
        if self.callback == "emit_batch":
            self.emit_batch("out", pa.table({"key": [row.key], "x": [1]}))

    def end_window(self) -> None:
        if self.callback == "end_window":
            self.emit("out", "a", 1)


@pytest.mark.parametrize("callback", ["begin_window", "process", "emit_batch", "end_window"])
def test_tuple_for_another_task_ends_the_pass(callback: str) -> None:
    # Rules: O97, O39
    app = Application("strays", window="1 s")
    first = app.add("first", Strays(callback=callback), rows=app.input("events"))
    app.add("second", Folds(), rows=first)
    [one] = passes(app)
    run = PassRun(one, 1, 10)
    context = OperatorContext(app.grid, WindowRange(0, 0), operator="strays")
    events = {("first", "rows"): {0: [("a", 1)]}}
    with pytest.raises(ForeignTuples, match='"first" emits tuples of other keys'):
        run.compute(context, events, run.initial_states())
