"""Which publications count when a new one is judged: those of the same outputs, without Spark."""

from __future__ import annotations

from typing import Any

import pytest

from rewindow.ledger import Ledger, Publication
from rewindow.ledger.publication_details import StaleWindows
from rewindow.publication import publish as publishing
from rewindow.publication.undo import DamagePolicy, open_undo
from rewindow.recovery import StartState
from rewindow.settings.config import Config
from rewindow.storage.layout import staged_contents, versions_of
from rewindow.storage.names import open_published
from rewindow.storage.staged_replay import StagedReplay
from rewindow.windows import WindowRange
from tests.publication.staging import prepared, simple, state_of


def opened(
    config: Config,
    replay_id: str,
    first: int,
    last: int,
    outputs: tuple[str, ...],
    **more: Any,
) -> Publication:
    """Stages a replay and enters its publication as a publisher would, but for the rows; it is
    closed.
    """
    plan = simple(config, replay_id, first, last, outputs=outputs, **more).plan
    ledger = Ledger.open(config.ledger_url)
    root = config.replay_root(replay_id)
    contents = staged_contents(root)
    tables = StagedReplay(plan, root, versions_of(contents))
    details = publishing.publication_details(
        config,
        ledger,
        publishing.Publishable(tables, contents),
    )
    publication = ledger.publications.open(
        replay_id,
        prepared(config, plan),
        first,
        last,
        details,
    )
    for table in publication.tables:
        ledger.publications.mark_done(
            publication.number,
            table.name,
            open_published(config, table.name).version,
        )
    ledger.publications.close(publication.number)
    return ledger.publications.get(publication.number)


@pytest.fixture
def next_start() -> dict[str, Any]:
    """What a replay of windows 110 to 119 begins with: the state that is published at window
    109.
    """
    return {"start": StartState(source="published", window=109), "start_state": state_of(109)}


def test_publications_of_other_outputs_do_not_make_windows_stale(
    config: Config,
    next_start: dict[str, Any],
) -> None:
    opened(config, "one", 100, 109, ("ranks",))
    opened(config, "other", 104, 105, ("delays",))
    assert opened(config, "two", 110, 119, ("ranks",), **next_start).details.stale == ()


def test_publications_that_share_an_output_make_later_windows_stale(
    config: Config,
    next_start: dict[str, Any],
) -> None:
    opened(config, "one", 100, 109, ("ranks",))
    opened(config, "other", 104, 105, ("delays", "ranks"))
    stale = opened(config, "two", 110, 119, ("ranks",), **next_start).details.stale
    assert stale == (StaleWindows("app.ranks", WindowRange(106, 119)),)


def test_stale_windows_of_other_outputs_stay_stale(config: Config) -> None:
    opened(config, "other", 104, 105, ("delays",))
    ledger = Ledger.open(config.ledger_url)
    ledger.stale.add("app", "app.delays", 104, 105, 1)
    assert opened(config, "one", 100, 109, ("ranks",)).details.stale == (
        StaleWindows("app.delays", WindowRange(104, 105)),
    )


def test_undo_does_not_change_other_outputs(config: Config) -> None:
    opened(config, "one", 100, 109, ("ranks",))
    opened(config, "other", 104, 105, ("delays",))
    fix = opened(config, "fix", 100, 101, ("ranks",), plus=7)
    assert fix.details.stale == (StaleWindows("app.ranks", WindowRange(102, 109)),)
    ledger = Ledger.open(config.ledger_url)
    ledger.stale.add("app", "app.delays", 104, 105, 1)
    spare = DamagePolicy(leave_out=False, command="")
    undo = open_undo(config, ledger, fix, "app", spare, lambda step, number: None)
    assert undo.details.stale == (StaleWindows("app.delays", WindowRange(104, 105)),)
