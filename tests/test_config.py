"""Settings of a stream."""

from __future__ import annotations

import pytest

from rewindow.config import StreamConfig
from rewindow.errors import InputError


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"width": "1.5 ms"}, "width of 1500 us is not a whole number of milliseconds (W3)"),
        ({"origin": "2013-01-01T00:00:00.0005Z"}, "origin 2013-01-01T00:00:00.0005Z is not a whole number of mill"),
        ({"origin": "1969-12-31T23:59:59.9995Z"}, "is not a whole number of milliseconds (W4)"),
    ],
)
def test_a_grid_of_less_than_milliseconds_is_refused(given: dict[str, str], text: str) -> None:
    """W3, W4: width and origin are integers; nothing is cut off, for the windows would be others."""
    with pytest.raises(InputError) as caught:
        _ = StreamConfig(source="x", arrived_at="at", **given).grid
    assert text in str(caught.value)


def test_an_origin_within_a_second_is_accepted() -> None:
    """W4: any millisecond."""
    stream = StreamConfig(source="x", arrived_at="at", origin="1970-01-01T00:00:00.250Z")
    assert stream.grid.origin_ms == 250
