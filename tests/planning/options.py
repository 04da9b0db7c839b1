"""What the tests of the launcher ask for."""

from __future__ import annotations

from rewindow.planning import ReplayRequest


def request(**replay_options: object) -> ReplayRequest:
    return ReplayRequest(**{"application": "totals", **replay_options})  # type: ignore[arg-type]
