"""What settings of windows over event time may not be."""

from __future__ import annotations

from typing import Any

import pytest

from rewindow.errors import InputError
from rewindow.operators.event_time_windows.settings import (
    CountWindows,
    EventWindows,
    GlobalWindow,
    SessionWindows,
)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"length": 0}, "above 0"),
        ({"slide": "0 s"}, "above 0"),
        (
            {"slide": "11 s"},
            "longer than length 10 s.*\n  Hint: Set sampling=True if this is intended",
        ),
        ({"slide": "1 us"}, "more than 10000 times"),
        ({"size": 1}, "size is unknown. .*Available settings: allowed_lateness, early"),
        ({"allowed_lateness": "-1 s"}, "must be from 0 to 100 years|cannot be read"),
        ({"early": 0}, "early must be above 0"),
        (
            {"late_tuples": 0, "allowed_lateness": "1 s"},
            "late_tuples must be 1 or more, or None for never, not 0",
        ),
        ({"late_tuples": 5}, "do not accept late tuples: set allowed_lateness"),
        ({"late": "1 s"}, "do not accept late tuples: set allowed_lateness"),
        (
            {"accumulation": "all"},
            'accumulation must be one of discarding, accumulating, retracting, not "all"',
        ),
        ({"only_updated_panes": True}, "each window fires once"),
        (
            {"only_updated_panes": True, "early": "1 s", "accumulation": "discarding"},
            "discarding panes cannot be compared",
        ),
        (
            {"slide": "11 s", "sampling": True, "early": "1 s"},
            "cannot have allowed_lateness or early",
        ),
        ({"length": "-1 s"}, "must be from 0 to 100 years|cannot be read"),
    ],
)
def test_event_windows_reject_wrong_settings(wrong: dict[str, Any], words: str) -> None:
    # Rules: E18, E20
    with pytest.raises(InputError, match=words):
        EventWindows(**({"length": "10 s", "slide": "10 s"} | wrong))
    assert EventWindows(length="10 s", slide="11 s", sampling=True).pane_us == 1_000_000
    with pytest.raises(InputError, match="gap must be above 0"):
        SessionWindows(gap=0)
    with pytest.raises(InputError, match="the global window cannot have late or late_tuples"):
        GlobalWindow(late_tuples=2)
    for counts, words in (
        ((0,), "from 1 to"),
        ((3, 4), "longer than length"),
        ((100_000, 1), "more than 10000 times"),
    ):
        with pytest.raises(InputError, match=words):
            CountWindows(**dict(zip(("length", "slide"), counts, strict=False)))
    assert CountWindows(length=5).slide == 5
    with pytest.raises(InputError) as caught:
        CountWindows(length=0)
    assert caught.value.primary.count(", not 0") == 1, "one error for length and slide"
