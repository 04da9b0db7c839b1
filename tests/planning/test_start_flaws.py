"""A start state that lacks windows or is stale: shown, refused, and allowed on request. No JVM."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from rewindow.errors import CheckpointError
from rewindow.facts.losses import losses_of
from rewindow.ledger import Ledger
from rewindow.ledger.publication_details import PublicationDetails
from rewindow.loading.catalog import load_application
from rewindow.planning import create_replay, draft_plan
from rewindow.settings.config import Config
from rewindow.state import checkpoints as stored
from rewindow.storage import Table, create_table
from rewindow.storage.formats import TableKind, format_property
from rewindow.storage.layout import FACTS
from rewindow.windows import WindowRange
from tests.ledger.life import run_to_end
from tests.planning.options import request
from tests.recovery.project import FIRST, WINDOWS, Project

BASE = FIRST + 9
"""Window of the published checkpoint; the ranges planned here begin behind it."""


@pytest.fixture
def config(project: Project) -> Config:
    """Settings of a project in which a replay of the first ten windows is published, its checkpoint
    with it.
    """
    config = project.config
    loaded = load_application(config, "totals", {})
    states = {"totals": loaded.app.nodes["totals"].operator.initial_state()}
    made = stored.Provenance(loaded.versions(None), 1)
    table = create_table(
        config.checkpoints_table("totals"),
        stored.SCHEMA,
        format_property(TableKind.STATES),
    )
    table.commit_arrow(
        stored.encode(BASE, 10, states, {"totals": 1}, made),
        app_id="publication",
        version=1,
    )
    return config


def published(config: Config, lacks: list[list[int]]) -> Ledger:
    """Enters the publication of that replay, whose state lacks windows."""
    ledger = Ledger.open(config.ledger_url)
    plan = create_replay(config, request(replay_id="first", last=BASE, mode="at_most_once"))
    run_to_end(ledger, plan.replay_id)
    versions = {"totals.totals": 1, "totals.totals.windows": 1, "totals.checkpoints": 1}
    details = PublicationDetails(state_lacks=tuple(WindowRange(*part) for part in lacks))
    publication = ledger.publications.open("first", versions, plan.first, plan.last, details)
    for name in versions:
        ledger.publications.mark_done(publication.number, name, 2)
    ledger.publications.close(publication.number)
    return ledger


def lacking(config: Config) -> None:
    """Windows 1004 and 1005 never reached the published state; what it lacked later than the
    checkpoint counts not.
    """
    published(config, [[FIRST + 4, FIRST + 5], [BASE + 3, BASE + 4]])


def stale(config: Config) -> None:
    published(config, []).stale.add("totals", "totals.totals", FIRST + 2, BASE, 1)


@pytest.mark.parametrize(
    ("flaw", "field", "windows", "words"),
    [
        (lacking, "lacking", (FIRST + 4, FIRST + 5), "lacks windows"),
        (
            stale,
            "stale",
            (FIRST + 2, BASE),
            rf"windows \[{FIRST + 2}, {BASE}\], which are out of date",
        ),
    ],
)
@pytest.mark.parametrize("later", [0, 3], ids=["from the checkpoint", "after a warm-up from it"])
def test_incomplete_start_state_is_rejected_with_the_command_that_repairs_it(
    config: Config,
    flaw: Callable[[Config], None],
    field: str,
    windows: tuple[int, int],
    words: str,
    later: int,
) -> None:
    flaw(config)
    wish = request(first=BASE + 1 + later, replay_id="next")
    draft = draft_plan(config, wish)
    assert draft.plan.start.window == BASE
    assert getattr(draft.plan.start, field) == [windows]
    with pytest.raises(CheckpointError, match=words) as caught:
        create_replay(config, wish)
    mend = (
        f"rewindow replay totals --first {windows[0]} --last {BASE}"
        if field == "lacking"
        else "rewindow repair --run"
    )
    assert mend in caught.value.hint
    assert not config.replay_root("next").exists()


@pytest.mark.parametrize("by", ["flag", "setting"])
def test_accepted_incomplete_start_state_is_stored_and_affects_later_windows(
    config: Config, by: str
) -> None:
    lacking(config)
    if by == "setting":
        allowed = config.replay.model_copy(update={"allow_affected": True})
        config = config.model_copy(update={"replay": allowed})
    plan = create_replay(
        config,
        request(first=BASE + 1, replay_id="next", allow_affected=by == "flag"),
    )
    assert any(
        "every window with state upstream is affected" in warning for warning in plan.warnings
    )
    losses = losses_of(plan, Table.open(config.replay_root("next") / FACTS), None, plan.range)
    assert losses.affected_first == {"totals": BASE + 1}
    assert [(part.first, part.last) for part in losses.lacking] == [(FIRST + 4, FIRST + 5)]


def test_at_most_once_accepts_an_incomplete_but_not_a_stale_start_state(config: Config) -> None:
    lacking(config)
    draft = draft_plan(config, request(first=BASE + 1, mode="at_most_once"))
    assert draft.refusal is None
    assert draft.plan.start.lacking
    Ledger.open(config.ledger_url).stale.add("totals", "totals.totals", FIRST, BASE, 2)
    assert draft_plan(config, request(first=BASE + 1, mode="at_most_once")).refusal is not None


def test_complete_start_states_are_accepted(config: Config) -> None:
    published(config, []).stale.add("totals", "totals.totals", BASE + 1, FIRST + WINDOWS - 1, 1)
    draft = draft_plan(config, request(first=BASE + 1))
    assert (draft.refusal, draft.plan.start.affects, draft.plan.warnings) == (None, False, [])


def test_start_state_of_another_replay_includes_its_losses(
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lacking(config)
    create_replay(config, request(first=BASE + 1, replay_id="next", allow_affected=True))
    draft = draft_plan(config, request(first=BASE + 1, state_from="next"))
    assert draft.plan.start.lacking == [(FIRST + 4, FIRST + 5)]
    assert draft.refusal is not None


def test_plan_shows_an_incomplete_start_state_before_it_fails(
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from rewindow.cli import app

    lacking(config)
    monkeypatch.setenv("REWINDOW_CONFIG", str(config.root / "rewindow.toml"))
    shown = CliRunner().invoke(app, ["plan", "totals", "--first", str(BASE + 1)])
    assert "every window with state upstream is affected" in shown.output.replace("\n", " ")
    assert isinstance(shown.exception, CheckpointError)
    allowed = CliRunner().invoke(
        app,
        ["plan", "totals", "--first", str(BASE + 1), "--allow-affected"],
    )
    assert allowed.exit_code == 0
