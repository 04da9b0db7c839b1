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
            "longer than length 10 s.*\n  Hint: sampling=True says that this is meant",
        ),
        ({"slide": "1 us"}, "more than 10000 times"),
        ({"size": 1}, "size is unknown. .*Known are allowed_lateness, early"),
        ({"allowed_lateness": "-1 s"}, "out of range|cannot be read"),
        ({"early": 0}, "early is 0"),
        ({"late_tuples": 0, "allowed_lateness": "1 s"}, "late_tuples is 0, it must be 1 or more"),
        ({"late_tuples": 5}, "these let none in: set allowed_lateness"),
        ({"late": "1 s"}, "these let none in: set allowed_lateness"),
        ({"accumulation": "all"}, 'accumulation is "all". Allowed are discarding, accumulating'),
        ({"only_updated_panes": True}, "which fire once"),
        (
            {"only_updated_panes": True, "early": "1 s", "accumulation": "discarding"},
            "which have nothing to compare",
        ),
        ({"slide": "11 s", "sampling": True, "early": "1 s"}, "neither allowed_lateness nor early"),
        ({"length": "-1 s"}, "out of range|cannot be read"),
    ],
)
def test_event_windows_reject_wrong_settings(wrong: dict[str, Any], words: str) -> None:
    # Rules: E18, E20
    with pytest.raises(InputError, match=words):
        EventWindows(**({"length": "10 s", "slide": "10 s"} | wrong))
    assert EventWindows(length="10 s", slide="11 s", sampling=True).pane_us == 1_000_000
    with pytest.raises(InputError, match="gap is 0"):
        SessionWindows(gap=0)
    with pytest.raises(InputError, match="the global window has no late and no late_tuples"):
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
    assert caught.value.primary.count("0 tuples are out of range") == 1, (
        "length and slide are told together"
    )
