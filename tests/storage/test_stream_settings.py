"""Settings that were changed after a recording: named with units, and with the way out."""

from __future__ import annotations

from typing import Any

import pytest

from rewindow.errors import InputError
from rewindow.settings.config import StreamConfig
from rewindow.storage.stream_settings import check_fixed_settings, fixed_settings


def stream(**settings: Any) -> StreamConfig:
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
    with pytest.raises(InputError, match=f"{now}, but it was recorded with {recorded}\n") as caught:
        check_fixed_settings("bays", stream(**changed), stored)
    [setting] = changed
    assert f'Restore {setting} = "{recorded}" in' in caught.value.hint
    assert "rewindow record bays --start-over" in caught.value.hint
    back = stream(**{setting: recorded})
    assert fixed_settings(back) == fixed_settings(stream()), (
        "what the hint says to write is the recorded setting"
    )


COLUMNS = "at TIMESTAMP, k STRING, a BIGINT, note STRING"
RECORDED = {
    "columns": COLUMNS,
    "keep": ["k", "a"],
    "select": {"total": "a + 1"},
    "keys": ["k"],
}


def stored() -> dict[str, str]:
    """Returns what is stored with a stream of the settings `RECORDED`."""
    settings = {key: str(value) for key, value in fixed_settings(stream(**RECORDED)).items()}
    return settings | {"schema": "`k` string, `a` bigint, `total` bigint", "keys": "k"}


@pytest.mark.parametrize(
    ("changed", "message", "way_back"),
    [
        (
            {"columns": COLUMNS.replace("a BIGINT", "a STRING")},
            "columns of stream .bays. is at TIMESTAMP, k STRING, a STRING, note STRING, but it "
            f"was recorded with {COLUMNS}",
            f'Restore columns = "{COLUMNS}" in rewindow.toml',
        ),
        (
            {"columns": None},
            f"columns of stream .bays. is not set, but it was recorded with {COLUMNS}",
            f'Restore columns = "{COLUMNS}" in',
        ),
        (
            {"keep": ["k"]},
            r'keep of stream .bays. is \["k"\], but it was recorded with \["k", "a"\]',
            'Restore keep = ["k", "a"] in',
        ),
        (
            {"select": {"total": "a + 2"}},
            r"select.total of stream .bays. is a \+ 2, but it was recorded with a \+ 1",
            'Restore select.total = "a + 1" in',
        ),
        (
            {"select": {"total": "a + 1", "more": "a"}},
            r"select.more of stream .bays. is a, but it was recorded without it",
            "Remove select.more from rewindow.toml",
        ),
        (
            {"keys": ["note"]},
            r'keys of stream .bays. is \["note"\], but it was recorded with \["k"\]',
            'Restore keys = ["k"] in',
        ),
    ],
    ids=str,
)
def test_changed_columns_are_reported_by_setting_with_two_solutions(
    changed: dict[str, Any],
    message: str,
    way_back: str,
) -> None:
    # Rules: W15
    check_fixed_settings("bays", stream(**RECORDED), stored())
    with pytest.raises(InputError, match=f"^{message}\n") as caught:
        check_fixed_settings("bays", stream(**RECORDED | changed), stored())
    assert way_back in caught.value.hint
    assert "rewindow record bays --start-over" in caught.value.hint


@pytest.mark.parametrize(
    "changed",
    [
        {"columns": "k string,a LONG NOT NULL, `at` timestamp_ntz"},
        {"keep": ["a", "k"]},
        {"keep": ["total", "k", "a"]},
        {"columns": "k STRING, a BIGINT", "keep": None},
        {"keys": ["k", "total"]},
        {"new_columns": "take", "columns": None, "keep": None},
        {
            "new_columns": "take",
            "columns": None,
            "keep": None,
            "select": {"total": "a + 1", "n": "1"},
        },
    ],
    ids=str,
)
def test_settings_may_change_if_the_recorded_columns_stay_the_same(changed: dict[str, Any]) -> None:
    check_fixed_settings("bays", stream(**RECORDED | changed), stored())


def test_columns_of_streams_without_stored_columns_are_not_compared() -> None:
    older = {key: value for key, value in stored().items() if key not in RECORDED}
    check_fixed_settings("bays", stream(**RECORDED | {"keep": ["k"]}), older)
