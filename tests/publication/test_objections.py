"""Publications over better or newer windows, which need a reason."""

from __future__ import annotations

import pytest

from rewindow.errors import GateError
from rewindow.publication.preview import PublicationPreview
from rewindow.publication.publish import expected_publication, publish
from rewindow.publication.undo import undo
from rewindow.settings.config import Config
from rewindow.windows import WindowRange
from tests.publication.staging import simple, stage_lossy

FLAWED = "it replaces published windows by flawed ones"
LOST = f"{FLAWED}, lost: ranks, 2 windows: [105, 106]"
AFFECTED = f"{FLAWED}, affected: ranks, 3 windows: [107, 109]"


def stage(config: Config, name: str, first: int = 100, last: int = 109, plus: int = 0) -> None:
    simple(config, name, first, last, plus, publishable=True, outputs=("ranks",))


def refused(config: Config, name: str) -> GateError:
    """Returns the refusal to publish a replay, which its dry run repeats word for word."""
    with pytest.raises(GateError, match=f'replay "{name}" cannot be published') as error:
        publish(config, name)
    with pytest.raises(GateError) as dry:
        expected_publication(config, name)
    assert str(dry.value) == str(error.value)
    return error.value


def test_lost_and_affected_windows_replace_published_ones_only_when_accepted(
    config: Config,
) -> None:
    stage(config, "good")
    publish(config, "good")
    stage_lossy(config, "lossy")
    error = refused(config, "lossy")
    assert LOST in error.primary and AFFECTED in error.detail
    assert 'rewindow publish lossy --accept "REASON"' in error.hint
    expected = expected_publication(config, "lossy", accept="known outage")
    assert isinstance(expected, PublicationPreview)
    assert expected.objections == (LOST, AFFECTED)
    result = publish(config, "lossy", accept="known outage")
    assert (result.accepted, result.overrides) == ("known outage", [LOST, AFFECTED])


def test_lost_windows_that_replace_nothing_are_shown_without_requiring_acceptance(
    config: Config,
) -> None:
    stage_lossy(config, "lossy")
    expected = expected_publication(config, "lossy")
    assert isinstance(expected, PublicationPreview)
    assert expected.flaws == {
        "lost: ranks": [WindowRange(105, 106)],
        "affected: ranks": [WindowRange(107, 109)],
    }
    assert expected.objections == ()
    result = publish(config, "lossy")
    assert (result.accepted, result.overrides) == (None, [])


def test_windows_missing_in_an_input_replace_published_ones_only_when_accepted(
    config: Config,
) -> None:
    stage(config, "good", 100, 104)
    publish(config, "good")
    missing = ((103, 107),)
    simple(config, "gaps", 100, 109, publishable=True, outputs=("ranks",), missing=missing)
    assert f"{FLAWED}, missing: flights, 2 windows: [103, 104]" in refused(config, "gaps").primary


def test_older_plan_replaces_a_newer_publication_only_when_accepted(config: Config) -> None:
    stage(config, "old")
    stage(config, "new", 104, 106, plus=1)
    publish(config, "new")
    error = refused(config, "old")
    older = 'it was planned before publication 1 of replay "new", which it replaces, 3 windows: '
    assert f"{older}[104, 106]" in error.primary
    undo(config, "new")
    assert publish(config, "old").overrides == []


def test_replacing_its_own_or_a_deleted_publication_needs_no_acceptance(
    config: Config,
) -> None:
    stage(config, "old")
    stage(config, "new", 104, 106, plus=1)
    publish(config, "new")
    publish(config, "old", accept="new was wrong")
    for name in ("app.ranks", "app.ranks.windows", "app.checkpoints"):
        config.stream_table(name).delete_tree()
    assert publish(config, "new", accept="old was wrong").overrides == []
    assert publish(config, "old", accept="new was wrong").overrides != []


def test_acceptance_of_a_failed_check_does_not_cover_later_changes(config: Config) -> None:
    stage_lossy(config, "lossy", checked=False)
    first = publish(config, "lossy", accept="known outage")
    assert first.overrides == ["its gate was not run"]
    undo(config, "lossy")
    again = publish(config, "lossy")
    assert (again.accepted, again.overrides) == ("known outage", ["its gate was not run"])
    undo(config, "lossy")
    stage(config, "good")
    publish(config, "good")
    assert LOST in refused(config, "lossy").primary
