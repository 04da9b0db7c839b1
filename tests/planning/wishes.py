"""What the tests of the launcher ask for."""

from __future__ import annotations

from rewindow.planning import ReplayRequest


def request(**wishes: object) -> ReplayRequest:
    return ReplayRequest(**{"application": "totals", **wishes})  # type: ignore[arg-type]
