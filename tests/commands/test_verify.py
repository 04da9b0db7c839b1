"""`rewindow plan --verify`: two groupings of a sample, with real jobs."""

from __future__ import annotations

import pytest

from rewindow.commands.verify import verify_sample
from rewindow.errors import NotDeterministicError
from rewindow.launcher import ReplayRequest, draft_plan
from rewindow.ledger import Ledger
from tests.recovery.project import FIRST, Project, make_project


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A recorded stream."""
    return make_project(tmp_path_factory.mktemp("verify"))


def verify(project: Project, application: str, mode: str = "exactly_once") -> None:
    request = ReplayRequest(application, mode=mode)
    verify_sample(project.config, request, draft_plan(project.config, request), 8)


def test_a_sound_application_is_verified(project: Project, capfd: pytest.CaptureFixture[str]) -> None:
    """Both replays go again, and the range is free."""
    verify(project, "totals")
    said = capfd.readouterr()
    assert "verified: 8 windows" in said.err
    assert said.out == "", "the output is the JSON of `plan --json --verify`"
    assert not list((project.config.state / "replays").glob("verify-*"))
    assert {row.state.value for row in Ledger.open(project.config.ledger_url).replays()} == {"abandoned"}


def test_an_application_of_a_declared_mode_is_verified_in_it(
    project: Project, capfd: pytest.CaptureFixture[str]
) -> None:
    """No other is allowed (R3); its checkpoint marks do not cut the one group in pieces."""
    verify(project, "declared", "at_least_once")
    said = capfd.readouterr().err
    assert "verified: 8 windows" in said and f"windows {FIRST} to {FIRST + 7}: 8/8" in said


def test_an_application_in_which_groups_show_is_caught(project: Project) -> None:
    """The first window that differs is named: the first is empty, the second the first with numbers (R86)."""
    with pytest.raises(NotDeterministicError, match=f'output "numbered" of window {FIRST + 2} depends on') as error:
        verify(project, "leaky")
    assert "carry what spans windows in the state" in error.value.hint
