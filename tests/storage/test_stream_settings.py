"""Settings that were changed after a recording: named with units, and with the way out."""

from __future__ import annotations

import pytest

from rewindow.errors import InputError
from rewindow.settings.config import StreamConfig
from rewindow.storage.stream_settings import check_fixed_settings, fixed_settings


def stream(**settings: str) -> StreamConfig:
    """Returns settings of a stream with windows of ten minutes."""
    return StreamConfig(
        **{"source": "x.csv", "arrived_at": "at", "width": "10 minutes", **settings}
    )


@pytest.mark.parametrize(
    ("changed", "now", "recorded"),
    [
        ({"width": "5 minutes"}, "width of stream .bays. is 5 min", "10 min"),
        ({"width": "2 hours"}, "width of stream .bays. is 2 h", "10 min"),
        (
            {"origin": "2026-01-01T00:00Z"},
            "origin of stream .bays. is 2026-01-01T00:00:00Z",
            "1970-01-01T00:00:00Z",
        ),
        ({"arrived_at": "seen"}, "arrived_at of stream .bays. is seen", "at"),
        ({"zone": "Europe/Berlin"}, "zone of stream .bays. is Europe/Berlin", "UTC"),
    ],
    ids=str,
)
def test_changed_setting_is_reported_with_units_and_two_solutions(
    changed: dict[str, str],
    now: str,
    recorded: str,
) -> None:
    # Rules: W4, W15
    stored = {key: str(value) for key, value in fixed_settings(stream()).items()}
    check_fixed_settings("bays", stream(), stored)
    with pytest.raises(InputError, match=f"{now}, it was recorded with {recorded}\n") as caught:
        check_fixed_settings("bays", stream(**changed), stored)
    [setting] = changed
    assert f'Put {setting} = "{recorded}" back' in caught.value.hint
    assert "rewindow record bays --start-over" in caught.value.hint
    back = stream(**{setting: recorded})
    assert fixed_settings(back) == fixed_settings(stream()), (
        "what the hint says to write is the recorded setting"
    )
