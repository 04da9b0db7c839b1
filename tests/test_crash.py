"""Crash points: what is asked for happens, or is refused; a drill that never comes proves nothing."""

from __future__ import annotations

import pytest

from rewindow.crash import Step, check_crash
from rewindow.errors import InputError


@pytest.mark.parametrize("text", [*Step, "after_outputs:3@1", "fenced@2,after_facts:2"])
def test_crash_point_of_a_known_step_is_accepted(text: str) -> None:
    """A step alone, with the number of its group, with the attempt, and several of them."""
    assert check_crash(text) == text


@pytest.mark.parametrize(
    "text", ["after_lunch:1@1", "after_outputs:0@1", "after_outputs:x", "@1", "after_outputs:1@1;x"]
)
def test_crash_point_that_would_never_come_is_refused(text: str) -> None:
    """A misspelt step would leave the job alive, and the drill would seem to have been passed."""
    with pytest.raises(InputError, match="the steps are fenced, warmed_up, resumed"):
        check_crash(text)
