from __future__ import annotations

import random

import pytest

from rewindow.application.modes import MODES, Mode
from rewindow.recovery import (
    CheckpointSchedule,
    after_crash,
    guarantees,
    open_windows,
    recovery_times,
)
from rewindow.windows import WindowRange

EO, ALO, AMO = Mode.EXACTLY_ONCE, Mode.AT_LEAST_ONCE, Mode.AT_MOST_ONCE
RANGE = WindowRange(100, 119)


def test_guarantee_depends_on_the_mode_and_on_upstream_losses() -> None:
    # Rules: R42, R48 to R50
    modes = {"a": ALO, "b": EO, "c": AMO, "d": AMO}
    found = guarantees(modes, {"b": ["a"], "c": ["b"], "d": ["a", "c"]}, unset={"d"})
    assert {name: (one.may_lose, one.may_repeat) for name, one in found.items()} == {
        "a": (False, True),
        "b": (False, False),
        "c": (True, False),
        "d": (True, False),
    }
    assert found["d"].deciding == ("d", "c")
    assert found["d"].reason == "d is at most once, by default, and c upstream may lose windows"


def test_exactly_once_recomputes_windows_missing_in_a_table() -> None:
    # Rules: R6, R10
    found = after_crash(EO, RANGE, [0, 6], {"out": 9, "facts": 6})
    assert (found.restored, found.first) == (105, 106)
    assert found.recomputed == WindowRange(106, 108)
    assert (found.lost, found.skipped, found.state_lost) == ({}, None, None)


def test_at_least_once_resumes_from_its_checkpoint() -> None:
    found = after_crash(ALO, RANGE, [0, 6], {"out": 6, "facts": 6}, furthest=10)
    assert found.recomputed == WindowRange(106, 109)


def test_at_most_once_lists_windows_lost_in_outputs_and_in_the_state() -> None:
    # Rules: R12, R14, R15, R38
    found = after_crash(AMO, RANGE, [0, 6], {"out": 9, "facts": 9}, started=12)
    assert (found.restored, found.first) == (105, 112)
    assert found.lost == {"out": WindowRange(109, 111), "facts": WindowRange(109, 111)}
    assert found.skipped == WindowRange(106, 111)
    assert found.state_lost == WindowRange(106, 108)
    assert found.recomputed is None


@pytest.mark.parametrize("seed", range(20))
def test_windows_available_in_any_port_are_opened_in_order_and_others_lost(seed: int) -> None:
    # Rules: R30, R31, R34, R35
    chosen = random.Random(seed)
    lacks = {
        port: {window for window in RANGE if chosen.random() < share}
        for port, share in (("a", 0.3), ("b", 0.5), ("c", 0.8))
    }
    missing = {
        port: [WindowRange(window, window) for window in sorted(found)]
        for port, found in lacks.items()
    }
    found = open_windows(RANGE, missing)
    lost = {window for part in found.lost for window in part}
    opened = [window for part in found.opened for window in part]
    assert lost == set.intersection(*lacks.values())
    assert opened == [window for window in RANGE if window not in lost]
    partial = {window: set(ports) for part, ports in found.partial for window in part}
    for window in opened:
        assert partial.get(window, set()) == {port for port in lacks if window in lacks[port]}


def test_windows_of_a_complete_input_are_opened_even_if_another_input_lacks_them() -> None:
    # Rules: R35
    found = open_windows(RANGE, {"recorded": [], "cut": [WindowRange(100, 101)]})
    assert (found.lost, found.opened) == ((), (RANGE,))
    assert found.partial == ((WindowRange(100, 101), ("cut",)),)


@pytest.mark.parametrize(
    ("mode", "what", "windows", "seconds"),
    [
        (EO, "recomputed", (5, 10), (4 + 2.5, 4 + 5)),
        (ALO, "recomputed", (30, 60), (4 + 15, 4 + 30)),
        (AMO, "lost", (5, 10), (4, 4)),
    ],
)
def test_recovery_time_is_computed_from_mode_and_measured_times(
    mode: Mode,
    what: str,
    windows: tuple[float, int],
    seconds: tuple[float, float],
) -> None:
    # Rules: R43, R44, R45, R46
    found = recovery_times(mode, CheckpointSchedule(60), 10, window_seconds=0.5, start_seconds=4)
    assert found.what == what
    assert (found.mean_windows, found.worst_windows) == windows
    assert (found.mean_seconds, found.worst_seconds) == seconds


def test_every_mode_has_a_recovery_time() -> None:
    for mode in MODES.values():
        assert recovery_times(mode, CheckpointSchedule(1), 1, 1.0, 1.0).worst_windows == 1
