"""What a recording says when it is done."""

from __future__ import annotations

from rewindow.recording.result import RecordResult


def test_malformed_rows_are_reported_with_a_command_only_when_they_exist() -> None:
    command = "rewindow streams quarantine clicks"
    assert command in "\n".join(RecordResult("clicks", malformed=3).lines())
    assert command not in "\n".join(RecordResult("clicks").lines())
