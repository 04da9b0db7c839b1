"""Application and sliding windows of tuple operators, in the framework that users test them with;
no JVM.
"""

from __future__ import annotations

import random
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from rewindow.application import (
    Application,
    InputPort,
    Mode,
    OperatorContext,
    OutputPort,
    describe_graph,
    find_violations,
)
from rewindow.application.configuring import apply_overrides
from rewindow.application.overrides import OPTION, PropertyOverride
from rewindow.application.windowing import Windowing
from rewindow.errors import InputError
from rewindow.loading.code_versions import configuration_digest
from rewindow.operators import SlidingField, StateField, TupleOperator
from rewindow.testing import CRASH, check_grouping, run_application, run_operator
from rewindow.tuple_engine.key_range import KeyRange
from rewindow.windows import Grid, WindowRange

CLICKS = pa.schema([("user", pa.string())])
COUNTS = pa.schema([("user", pa.string()), ("count", pa.int64())])


class Calls(TupleOperator):
    inputs: ClassVar = {"clicks": InputPort(CLICKS)}
    outputs: ClassVar = {"out": OutputPort(pa.schema([("call", pa.string())]))}

    def begin_window(self, window_id: int) -> None:
        self.emit("out", "begin")

    def process(self, row: Any) -> None:
        self.emit("out", row.user)

    def end_window(self) -> None:
        self.emit("out", "end")

    def slide(self) -> None:
        self.emit("out", "slide")


class Joins(TupleOperator):
    inputs: ClassVar = {
        "left": InputPort(pa.schema([("call", pa.string())])),
        "right": InputPort(CLICKS),
    }
    outputs: ClassVar = {"out": OutputPort(CLICKS)}


class PerPeriod(TupleOperator):
    """Clicks of each user in each application window, and nothing that is kept from one to the
    next.
    """

    inputs: ClassVar = {"clicks": InputPort(CLICKS, key=("user",))}
    outputs: ClassVar = {"out": OutputPort(COUNTS)}
    count = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]

    def process(self, row: Any) -> None:
        self.count += 1

    def end_window(self) -> None:
        for user in self.keys():
            self.emit("out", user, self.count)
            self.forget()


class Marked(PerPeriod):
    """Says beside the count whether windows are missing in it."""

    outputs: ClassVar = {"out": OutputPort(pa.schema([*COUNTS, ("partial", pa.bool_())]))}

    def end_window(self) -> None:
        for user in self.keys():
            self.emit("out", user, self.count, self.is_partial)
            self.forget()


class Moving(TupleOperator):
    inputs: ClassVar = {"clicks": InputPort(CLICKS, key=("user",))}
    outputs: ClassVar = {"out": OutputPort(COUNTS)}
    count = SlidingField(pa.int64(), 0)  # type: ignore[pydantic-field]
    names = SlidingField(pa.list_(pa.string()), [])  # type: ignore[pydantic-field]

    def process(self, row: Any) -> None:
        self.count += 1
        self.names.append(row.user)

    def slide(self) -> None:
        for user in self.keys():
            found = sum(self.partials("count"))
            assert [user] * found == [name for names in self.partials("names") for name in names]
            if found:
                self.emit("out", user, found)
            else:
                self.forget()


def clicks(seed: int, first: int = 0, windows: int = 30) -> dict[str, dict[int, list[tuple[str]]]]:
    chosen = random.Random(seed)
    users = "abc"
    return {
        "clicks": {
            window: [(chosen.choice(users),) for _ in range(chosen.choice([0, 0, 1, 3]))]
            for window in range(first, first + windows)
        }
    }


def test_application_window_callbacks_are_aligned_to_window_ids() -> None:
    # Rules: W18, W19, X8
    found = run_operator(
        Calls(),
        {"clicks": {8: [("ann",)]}},
        windows=(5, 12),
        application_windows=3,
    )
    assert found["out"] == [
        (5, "end"),
        (6, "begin"),
        (8, "ann"),
        (8, "end"),
        (9, "begin"),
        (11, "end"),
        (12, "begin"),
    ]


@pytest.mark.parametrize(
    ("whole", "slide", "due"),
    [(6, 4, [5, 9, 13]), (4, 2, [3, 5, 7, 9, 11, 13]), (3, 3, [2, 5])],
)
def test_sliding_window_uses_panes_and_emits_every_slide(
    whole: int,
    slide: int,
    due: list[int],
) -> None:
    # Rules: W28, W31
    found = run_operator(
        Calls(),
        {},
        windows=(0, due[-1]),
        application_windows=whole,
        slide_windows=slide,
    )["out"]
    pane = {(6, 4): 2, (4, 2): 2, (3, 3): 3}[whole, slide]
    assert [window for window, call in found if call == "slide"] == due
    assert [window for window, call in found if call == "begin"] == list(
        range(0, due[-1] + 1, pane)
    )


@pytest.mark.parametrize("seed", range(4))
def test_tumbling_application_window_continues_across_the_end_of_a_group(seed: int) -> None:
    # Rules: W21, W24, W59
    given = clicks(seed)
    expected = [
        (end, user, count)
        for end in range(4, 30, 5)
        for user in "abc"
        if (
            count := sum(
                row == (user,)
                for window in range(end - 4, end + 1)
                for row in given["clicks"][window]
            )
        )
    ]
    found = check_grouping(PerPeriod(), given, seed=seed, windows=(0, 29), application_windows=5)
    assert found["out"] == expected


@pytest.mark.parametrize("seed", range(4))
def test_sliding_application_window_continues_across_the_end_of_a_group(seed: int) -> None:
    # Rules: W27, W29, W32
    given = clicks(seed)
    expected = [
        (end, user, count)
        for end in range(5, 30, 4)
        for user in "abc"
        if (
            count := sum(
                row == (user,)
                for window in range(end - 5, end + 1)
                for row in given["clicks"][window]
            )
        )
    ]
    found = check_grouping(
        Moving(),
        given,
        seed=seed,
        windows=(0, 29),
        application_windows=6,
        slide_windows=4,
    )
    assert found["out"] == expected


def test_expired_panes_are_removed_from_the_state() -> None:
    # Rules: W32
    given = {"clicks": {window: [("ann",)] for window in range(40)}}
    found = run_operator(Moving(), given, application_windows=6, slide_windows=4)
    assert found.states["ann"]["count"] == {17: 2, 18: 2, 19: 2}


def test_partials_of_a_field_that_is_not_sliding_are_rejected() -> None:
    class Wrong(PerPeriod):
        def end_window(self) -> None:
            self.partials("count")

    with pytest.raises(InputError, match='Wrong has no SlidingField "count"'):
        run_operator(Wrong(), {"clicks": {1: [("ann",)]}})


def _application(**attributes: Any) -> Application:
    app = Application("periods", window="1 second")
    app.output(
        "out",
        app.add("per", PerPeriod(), clicks=app.input("clicks"), **attributes),
        key=["user"],
    )
    return app


@pytest.mark.parametrize(
    ("attributes", "mode", "message"),
    [
        ({"application_windows": 0}, "exactly_once", "application windows must be at least 1"),
        (
            {"application_windows": 4, "slide_windows": 5},
            "exactly_once",
            "a window slides by at least 1 and at most",
        ),
        (
            {"application_windows": 4, "slide_windows": 0},
            "exactly_once",
            "a window slides by at least 1 and at most",
        ),
        (
            {"application_windows": 4, "checkpoint_windows": 6},
            "at_most_once",
            "must be a multiple of its 4 application",
        ),
    ],
)
def test_invalid_application_windows_are_rejected_at_launch(
    attributes: dict[str, int],
    mode: str,
    message: str,
) -> None:
    # Rules: W18, W30, W50, R20
    found = find_violations(_application(**attributes), Mode.parse(mode))
    assert [one for one in found if message in str(one)], found


def test_application_windows_can_be_overridden_like_other_attributes() -> None:
    # Rules: O28, R20, W30
    app = _application(application_windows=4, slide_windows=4, checkpoint_windows=8)
    assert not find_violations(app, Mode.AT_MOST_ONCE)
    assert any("slides by its whole length" in text for text in app.warnings())
    asked = {"application_windows": "6", "slide_windows": "2"}
    given = [
        PropertyOverride(operator="per", name=name, value=value, source=OPTION)
        for name, value in asked.items()
    ]
    apply_overrides(app, given)
    (described,) = describe_graph(app).operators
    found = {one.name: one.value for one in described.properties}
    assert (found["application_windows"], found["slide_windows"]) == (6, 2)


def test_configuration_digest_depends_on_application_windows() -> None:
    # Rules: W65, X8
    plain = configuration_digest(_application())
    four = configuration_digest(_application(application_windows=4))
    slid = configuration_digest(_application(application_windows=4, slide_windows=2))
    assert len({plain, four, slid}) == 3
    given = _application()
    apply_overrides(
        given,
        [PropertyOverride(operator="per", name="application_windows", value="4", source=OPTION)],
    )
    assert configuration_digest(given) == four


def test_incomplete_application_window_is_marked_as_partial() -> None:
    # Rules: X8, R20
    clicks: dict[int, list[Any]] = {window: [("ann",)] for window in range(6, 20)}
    for group in (1, 5, 14):
        found = run_operator(
            Marked(),
            {"clicks": clicks},
            application_windows=4,
            group_windows=group,
        )
        assert found["out"] == [
            (7, "ann", 2, True),
            (11, "ann", 4, False),
            (15, "ann", 4, False),
            (19, "ann", 4, False),
        ]
    clicks[13] = [("ann",), CRASH]
    how = {"mode": "at_most_once", "group_windows": 1}
    lost = run_operator(
        Marked(),
        {"clicks": clicks},
        application_windows=4,
        checkpoint_windows=1,
        **how,  # type: ignore[arg-type]
    )
    assert lost["out"] == [
        (7, "ann", 2, True),
        (11, "ann", 4, False),
        (15, "ann", 3, True),
        (19, "ann", 4, False),
    ]


def test_application_window_is_marked_partial_after_a_loss() -> None:
    # Rules: X8, R20
    # The newest checkpoint is that of window 11, so that window 12 is lost to the state.
    clicks: dict[int, list[Any]] = {window: [("ann",)] for window in range(8, 20)}
    clicks[13] = [("ann",), CRASH]
    app = Application("app", window="1 s", checkpoint_windows=4)
    node = app.add(
        "one",
        Marked(),
        clicks=app.input("clicks"),
        application_windows=4,
        checkpoint_windows=4,
    )
    app.output("out", node, key=["user"])
    found = run_application(app, {"clicks": clicks}, mode="at_most_once")
    assert found["out"] == [(11, "ann", 4, False), (15, "ann", 2, True), (19, "ann", 4, False)]
    assert (found.lost, found.state_lost) == ([13], [12])


def test_end_of_a_recording_ends_an_application_window_in_a_test() -> None:
    # Rules: W23, X21
    clicks: dict[str, dict[int, list[Any]]] = {
        "clicks": {window: [("ann",)] for window in range(8)}
    }
    how = {"windows": (0, 11), "group_windows": 3}
    whole = [(3, "ann", 4, True), (7, "ann", 4, False)]
    # Without a state before the range, a window is partial only where the range cuts it.
    whole[0] = (3, "ann", 4, False)
    ended = [*whole[:1], (5, "ann", 2, True)]
    few = {"clicks": {window: [("ann",)] for window in range(6)}}
    assert run_operator(Marked(), clicks, application_windows=4, **how)["out"] == whole  # type: ignore[arg-type]
    assert run_operator(Marked(), few, application_windows=4, ends=5, **how)["out"] == ended  # type: ignore[arg-type]
    app = Application("app", window="1 s")
    node = app.add("one", Marked(), clicks=app.input("clicks"), application_windows=4)
    app.output("out", node, key=["user"])
    assert run_application(app, few, ends={"clicks": 5}, **how)["out"] == ended  # type: ignore[arg-type]
    with pytest.raises(InputError, match='"app" reads no stream "click"'):
        run_application(app, few, ends={"click": 5}, **how)  # type: ignore[arg-type]


def test_frame_operator_receives_its_partial_application_windows() -> None:
    # Rules: X8
    unseen = ((-(1 << 62), 5), (13, 13))
    asked = [
        [
            window
            for window in (last, *range(last - 3, last))
            if OperatorContext(
                Grid(1000, 0),
                WindowRange(6, 19),
                windowing=Windowing(4),
                unseen=unseen,
            ).is_partial(window)
        ]
        for last in (7, 11, 15, 19)
    ]
    assert asked == [[7, 4, 5, 6], [], [15, 13, 14], []]
    for groups, wanted in (([(6, 19)], [7, 15]), ([(6, 10), (11, 14), (15, 19)], [7, 15, 15])):
        contexts = [
            OperatorContext(
                Grid(1000, 0),
                WindowRange(*group),
                windowing=Windowing(4),
                unseen=unseen,
            )
            for group in groups
        ]
        assert [last for one in contexts for last in one.partial_windows()] == wanted
    sliding = OperatorContext(
        Grid(1000, 0),
        WindowRange(6, 19),
        windowing=Windowing(4, 2),
        unseen=unseen,
    )
    assert [window for window in range(6, 20) if sliding.is_partial(window)] == [
        6,
        7,
        8,
        13,
        14,
        15,
        16,
    ]


def test_end_of_a_recording_closes_an_application_window_once() -> None:
    own = {"operator": "app.one", "ends": {"one": 13}, "windowing": Windowing(4)}
    behind = OperatorContext(Grid(1000, 0), WindowRange(8, 19), **own)  # type: ignore[arg-type]
    assert [window for window in range(8, 20) if behind.closes(window)] == [11, 13, 19]
    assert [window for window in range(8, 20) if behind.is_partial(window)] == [13]
    assert (behind.end, behind.ended_us) == (13, 13_999_999)
    before = OperatorContext(Grid(1000, 0), WindowRange(8, 12), **own)  # type: ignore[arg-type]
    assert before.ended_us is None
    whole = OperatorContext(
        Grid(1000, 0),
        WindowRange(8, 15),
        "",
        "app.one",
        ends={"one": 15},
        windowing=Windowing(4),
    )  # type: ignore[arg-type]
    assert [window for window in range(8, 16) if whole.closes(window)] == [
        11,
        15,
    ] and not whole.is_partial(15)


class Endings(TupleOperator):
    inputs: ClassVar = {"clicks": InputPort(CLICKS)}
    outputs: ClassVar = {"out": OutputPort(COUNTS)}
    calls: ClassVar[list[tuple[int, bool]]] = []

    def process(self, row: Any) -> None:
        pass

    def end_window(self) -> None:
        self.calls.append((self.window_id, self.is_partial))


@pytest.mark.parametrize(
    ("windows", "ends", "calls"),
    [
        ((8, 19), {"one": 13}, [(11, False), (13, True), (19, False)]),
        ((8, 13), {}, [(11, False)]),
    ],
    ids=["the recording ends", "the group ends"],
)
def test_application_window_ends_as_partial_with_a_recording_but_not_with_a_group(
    windows: tuple[int, int],
    ends: dict[str, int],
    calls: list[tuple[int, bool]],
) -> None:
    # Rules: W23
    Endings.calls.clear()
    context = OperatorContext(
        Grid(1000, 0),
        WindowRange(*windows),
        operator="app.one",
        ends=ends,
        windowing=Windowing(4),
    )
    list(KeyRange(Endings(), context).run([]))
    assert Endings.calls == calls


def test_checkpoint_marks_are_not_moved_to_the_ends_of_application_windows() -> None:
    # Rules: W48
    class Saved(TupleOperator):
        inputs: ClassVar = {"clicks": InputPort(CLICKS)}
        outputs: ClassVar = {"out": OutputPort(pa.schema([("call", pa.string())]))}
        calls: ClassVar[list[tuple[str, int]]] = []

        def process(self, row: Any) -> None:
            pass

        def end_window(self) -> None:
            self.calls.append(("end", self.window_id))

        def before_checkpoint(self, window_id: int) -> None:
            self.calls.append(("save", window_id))

    run_operator(Saved(), {}, windows=(0, 7), application_windows=4, checkpoint_windows=3)
    assert Saved.calls == [("save", 2), ("end", 3), ("save", 5), ("end", 7)]


def test_operator_has_ended_when_all_its_upstream_streams_have_ended() -> None:
    # Rules: X21
    app = Application("app", window="1 hour")
    first = app.add("first", Calls(), clicks=app.input("a"))
    app.add("second", Joins(), left=first, right=app.input("b"))
    assert app.ends({"a": 7, "b": None}) == {"first": 7}
    assert app.ends({"a": 7, "b": 9}) == {"first": 7, "second": 9}
