"""What a recording says when it is done."""

from __future__ import annotations

from rewindow.recording.result import RecordResult


def test_malformed_rows_come_with_the_command_that_shows_them() -> None:
    """Only where there are some."""
    command = "rewindow streams quarantine clicks"
    assert command in "\n".join(RecordResult("clicks", malformed=3).lines())
    assert command not in "\n".join(RecordResult("clicks").lines())
