"""Crash points: what is asked for happens, or is refused; a drill that never comes proves
nothing.
"""

from __future__ import annotations

import pytest

from rewindow.crash import Step, check_crash
from rewindow.errors import InputError


@pytest.mark.parametrize("text", [*Step, "after_outputs:3@1", "fenced@2,after_facts:2"])
def test_crash_point_of_a_known_step_is_accepted(text: str) -> None:
    assert check_crash(text) == text


@pytest.mark.parametrize(
    "text",
    ["after_lunch:1@1", "after_outputs:0@1", "after_outputs:x", "@1", "after_outputs:1@1;x"],
)
def test_unreachable_crash_point_is_rejected(text: str) -> None:
    # With a misspelt step the job would survive, and the drill would seem passed.
    with pytest.raises(InputError, match="the steps are fenced, warmed_up, resumed"):
        check_crash(text)
