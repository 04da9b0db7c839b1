"""Replays that exist only while a command runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rewindow.errors import RewindowError
from rewindow.ledger import Ledger
from rewindow.ledger.replays import SAMPLE
from rewindow.settings.config import Config


@contextmanager
def temporary_replays(config: Config, again: str) -> Iterator[list[str]]:
    """Yields a list for ids of replays.

    When the context ends, these replays and their containers are deleted.

    Args:
        config: current settings.
        again: command that starts over; it replaces the hint of an error that names a deleted
            replay.
    """
    ids: list[str] = []
    try:
        yield ids
    except RewindowError as error:
        for replay_id in ids:
            if replay_id in error.hint:
                error.detail = "The candidate replays were deleted."
                error.hint = f"Start again: {again}"
        raise
    finally:
        ledger = Ledger.open(config.ledger_url)
        for replay_id in ids:
            names = [replay_id]
            for container in ledger.replays.containers(replay_id):
                names.append(container.replay_id)
            for name in names:
                if ledger.replays.find(name):
                    ledger.replays.abandon(name, SAMPLE)
                config.replay_root(name).delete_tree()
