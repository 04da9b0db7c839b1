"""What tuple operators are told of checkpoints, and what is said where a callback fails; no JVM."""

from __future__ import annotations

import threading
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from rewindow.application import Application, InputPort, OutputPort
from rewindow.errors import InputError
from rewindow.operators import StateField, TupleOperator
from rewindow.testing import CRASH, run_application, run_operator

CLICKS = pa.schema([("user", pa.string())])


class Told(TupleOperator):
    inputs: ClassVar = {"clicks": InputPort(CLICKS)}
    outputs: ClassVar = {"out": OutputPort(pa.schema([("flushes", pa.int64())]))}
    calls: ClassVar[list[tuple[str, int]]] = []
    flushes = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]

    def begin_window(self, window_id: int) -> None:
        self.calls.append(("begin", window_id))
        self.emit("out", self.flushes)

    def process(self, row: Any) -> None:
        pass

    def end_window(self) -> None:
        self.calls.append(("end", self.window_id))

    def before_checkpoint(self, window_id: int) -> None:
        self.calls.append(("before", window_id))
        self.flushes += 1

    def checkpointed(self, window_id: int) -> None:
        self.calls.append(("checkpointed", window_id))

    def committed(self, window_id: int) -> None:
        self.calls.append(("committed", window_id))


@pytest.fixture(autouse=True)
def fresh() -> None:
    """Forgets the calls of the test before."""
    Told.calls.clear()


def test_next_group_is_notified_of_the_checkpoint_before_its_first_window() -> None:
    # Rules: W53, W77, W78, X20, X42
    run_operator(Told(), {}, windows=(3, 6), group_windows=2)
    assert Told.calls == [
        ("begin", 3),
        ("end", 3),
        ("begin", 4),
        ("end", 4),
        ("checkpointed", 4),
        ("committed", 4),
        ("begin", 5),
        ("end", 5),
        ("begin", 6),
        ("end", 6),
    ]


@pytest.mark.parametrize("group", [1, 3, 10])
def test_before_checkpoint_is_called_at_checkpoint_marks_and_its_changes_saved(group: int) -> None:
    # Rules: W53, X42
    found = run_operator(Told(), {}, windows=(0, 9), group_windows=group, checkpoint_windows=4)
    assert [call for call in Told.calls if call[0] == "before"] == [("before", 3), ("before", 7)]
    assert found["out"] == [(window, window // 4) for window in range(10)]
    assert found.states == {(): {"flushes": 2}}
    assert Told.calls[Told.calls.index(("before", 3)) - 1] == ("end", 3)


@pytest.mark.parametrize("mode", ["exactly_once", "at_least_once", "at_most_once"])
def test_operator_is_notified_again_of_the_restored_checkpoint_after_a_crash(mode: str) -> None:
    # Rules: X42
    run_operator(
        Told(),
        {"clicks": {2: [("ann",), CRASH], 4: [("ann",)]}},
        windows=(0, 4),
        group_windows=2,
        mode=mode,
        checkpoint_windows=2,
    )
    told = [window for call, window in Told.calls if call == "committed"]
    assert told == ([1, 1] if mode == "at_most_once" else [1, 1, 3])


@pytest.mark.parametrize("mode", ["at_least_once", "at_most_once"])
def test_operator_is_notified_of_checkpoints_but_not_of_groups(mode: str) -> None:
    # Rules: W53, W78, X7, X42
    how = {"group_windows": 2, "checkpoint_windows": 6, "mode": mode}
    run_operator(Told(), {}, windows=(0, 11), **how)  # type: ignore[arg-type]
    told = [call for call in Told.calls if call[0] not in ("begin", "end")]
    assert told == [("before", 5), ("checkpointed", 5), ("committed", 5), ("before", 11)]


def test_application_checkpoints_occur_at_a_common_multiple_of_all_operators() -> None:
    # Rules: W53, X7
    app = Application("one", window="1 s", checkpoint_windows=6)
    told = app.add("told", Told(), clicks=app.input("clicks"), checkpoint_windows=5)
    app.output("out", told, key=[])
    run_application(app, {}, windows=(0, 20), group_windows=3, mode="at_least_once")
    called = {
        name: [w for call, w in Told.calls if call == name] for name in ("before", "committed")
    }
    assert called == {"before": [9, 14, 19], "committed": [9, 14, 19]}


@pytest.mark.parametrize("callback", ["checkpointed", "committed"])
@pytest.mark.parametrize(
    ("does", "words"),
    [("emits", "Bad emits outside of a window"), ("changes", "Bad changes its state in ")],
)
def test_checkpoint_callbacks_may_neither_emit_nor_change_state(
    callback: str,
    does: str,
    words: str,
) -> None:
    # Rules: X42
    class Bad(Told):
        seen = StateField(pa.list_(pa.int64()), [])  # type: ignore[pydantic-field]

        def tell(self, window_id: int) -> None:
            if does == "emits":
                self.emit("out", 1)
            self.seen.append(window_id)

    setattr(Bad, callback, Bad.tell)
    with pytest.raises(InputError, match=words) as error:
        run_operator(Bad(), {}, windows=(3, 6), group_windows=2)
    assert error.value.__notes__ == [f"in {callback}(4) of Bad"]


def test_checkpoint_callbacks_may_read_keyed_state_but_not_change_it() -> None:
    # Rules: O36
    class Keyed(Told):
        inputs: ClassVar = {"clicks": InputPort(CLICKS, key=("user",))}
        changes: bool = False

        def begin_window(self, window_id: int) -> None:
            pass

        def before_checkpoint(self, window_id: int) -> None:
            pass

        def process(self, row: Any) -> None:
            self.flushes += 1

        def committed(self, window_id: int) -> None:
            for _ in self.keys():
                assert self.flushes == 1
                if self.changes:
                    self.flushes = 5

    given = {"clicks": {1: [("ann",)], 2: [("bob",)]}}
    assert run_operator(Keyed(), given).states == {"ann": {"flushes": 1}, "bob": {"flushes": 1}}
    with pytest.raises(InputError, match="Keyed changes its state in committed"):
        run_operator(Keyed(changes=True), given)


def test_operator_reads_the_number_of_windows_to_the_next_checkpoint() -> None:
    # Rules: W47
    class Left(Told):
        outputs: ClassVar = {"out": OutputPort(pa.schema([("left", pa.int64())]))}

        def begin_window(self, window_id: int) -> None:
            self.emit("out", self.windows_to_checkpoint)

    for group in (1, 3, 7):
        found = run_operator(
            Left(),
            {"clicks": {}},
            windows=(2, 8),
            checkpoint_windows=4,
            group_windows=group,
        )
        assert found["out"] == [(2, 2), (3, 1), (4, 4), (5, 3), (6, 2), (7, 1), (8, 4)]


def test_operator_is_called_by_one_thread_and_never_concurrently() -> None:
    # Rules: O34, W59
    threads: dict[int, set[int]] = {}
    inside: list[str] = []

    class Watched(Told):
        def __getattribute__(self, name: str) -> Any:
            found = super().__getattribute__(name)
            if name not in (
                "setup",
                "begin_window",
                "process",
                "end_window",
                "before_checkpoint",
                "teardown",
            ):
                return found

            def called(*arguments: Any) -> Any:
                assert not inside, (name, inside)
                threads.setdefault(id(self), set()).add(threading.get_ident())
                inside.append(name)
                try:
                    return found(*arguments)
                finally:
                    inside.pop()

            return called

    run_operator(Watched(), {"clicks": {1: [("ann",)], 2: [("bob",), ("eve",)]}})
    assert threads and all(len(of_copy) == 1 for of_copy in threads.values())


def test_setup_can_read_and_reject_attributes() -> None:
    # Rules: O28, O29
    class Careful(Told):
        def setup(self) -> None:
            if self.context.mode.may_lose or self.context.windowing.application % 2:
                raise InputError(f"Careful cannot run {self.context.mode.words}")

    given: dict[str, dict[int, list[Any]]] = {"clicks": {1: [("ann",)]}}
    assert run_operator(Careful(), given, application_windows=2).crashes == 0
    for wrong in ({"mode": "at_most_once", "application_windows": 2}, {"application_windows": 3}):
        with pytest.raises(InputError, match="Careful cannot run") as error:
            run_operator(Careful(), given, **wrong)  # type: ignore[arg-type]
        assert error.value.__notes__ == ["in setup of Careful"]


class Fails(Told):
    fails_in: str
    too: str = ""

    def _maybe(self, callback: str) -> None:
        if callback in (self.fails_in, self.too):
            raise ValueError(f"no {callback}")

    def setup(self) -> None:
        self._maybe("setup")

    def begin_window(self, window_id: int) -> None:
        self._maybe("begin_window")

    def process(self, row: Any) -> None:
        self._maybe("process")

    def end_window(self) -> None:
        self._maybe("end_window")

    def slide(self) -> None:
        self._maybe("slide")

    def before_checkpoint(self, window_id: int) -> None:
        self._maybe("before_checkpoint")

    def checkpointed(self, window_id: int) -> None:
        self._maybe("checkpointed")

    def committed(self, window_id: int) -> None:
        self._maybe("committed")

    def teardown(self) -> None:
        self._maybe("teardown")


@pytest.mark.parametrize(
    ("at", "note"),
    [
        ("setup", "in setup of Fails"),
        ("begin_window", "in begin_window of Fails, window 4"),
        (
            "process",
            "in process of port clicks of Fails, window 5, at the tuple clicks(user='ann')",
        ),
        ("end_window", "in end_window of Fails, window 5"),
        ("slide", "in slide of Fails, window 5"),
        ("before_checkpoint", "in before_checkpoint of Fails, window 5"),
        ("teardown", "in teardown of Fails, window 5"),
        ("checkpointed", "in checkpointed(5) of Fails"),
        ("committed", "in committed(5) of Fails"),
    ],
)
def test_failing_callback_is_reported_with_its_window_and_tuple(at: str, note: str) -> None:
    with pytest.raises(ValueError, match=f"no {at}") as error:
        run_operator(
            Fails(fails_in=at),
            {"clicks": {5: [("ann",)]}},
            windows=(4, 7),
            group_windows=2,
            checkpoint_windows=2,
            application_windows=2,
            slide_windows=2,
        )
    assert error.value.__notes__ == [note]


def test_failing_teardown_does_not_hide_the_first_error() -> None:
    # Rules: O35
    with pytest.raises(ValueError, match="no process") as error:
        run_operator(Fails(fails_in="process", too="teardown"), {"clicks": {5: [("ann",)]}})
    assert error.value.__notes__[-1] == "teardown failed too: ValueError: no teardown"
