"""Completions that the shell offers: names from the settings, the state folder and the ledger.

Only reads. If there is no project, or it cannot be read, nothing is offered, because a shell cannot
show an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rewindow.errors import RewindowError
from rewindow.settings.config import Config

_REPLAYS_OFFERED = 200


def _offer(incomplete: str, names: Callable[[Config], Iterable[str]]) -> list[str]:
    try:
        return _beginning_with(incomplete, names(Config.load()))
    except RewindowError:
        return []


def _beginning_with(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def sources(incomplete: str) -> list[str]:
    """Returns the streams that can be recorded."""
    return _offer(incomplete, lambda config: sorted(config.streams))


def streams(incomplete: str) -> list[str]:
    """Returns the streams in the settings, and those that are recorded or published."""
    from rewindow.storage.streams import sealed_streams

    return _offer(
        incomplete,
        lambda config: sorted({*config.streams, *sealed_streams(config.state / "streams")}),
    )


def applications(incomplete: str) -> list[str]:
    """Returns the applications that can be replayed, without importing them."""
    from rewindow.loading.catalog import application_names

    return _offer(incomplete, application_names)


def replays(incomplete: str) -> list[str]:
    """Returns the newest replays, newest first. Does not create a ledger."""
    from rewindow.ledger import Ledger

    def names(config: Config) -> list[str]:
        newest = Ledger.open(config.ledger_url, make=False).replays.newest(limit=_REPLAYS_OFFERED)
        return [row.replay_id for row in newest]

    return _offer(incomplete, names)


def subjects(incomplete: str) -> list[str]:
    """Returns replays and applications."""
    return [*applications(incomplete), *replays(incomplete)]


def sides(incomplete: str) -> list[str]:
    """Returns the possible sides of a certificate: replays, and "published"."""
    from rewindow.names import PUBLISHED

    return _beginning_with(incomplete, [PUBLISHED]) + replays(incomplete)


def modes(incomplete: str) -> list[str]:
    """Returns the recovery modes."""
    from rewindow.application.modes import MODES

    return _beginning_with(incomplete, MODES)


def states(incomplete: str) -> list[str]:
    """Returns the states that a replay can be in."""
    from rewindow.ledger.replays import ReplayState

    return _beginning_with(incomplete, ReplayState)
