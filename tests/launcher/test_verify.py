"""`rewindow plan --verify`: two groupings of a sample, with jobs in this process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rewindow.commands.screen import JobScreen
from rewindow.config import Config
from rewindow.errors import NotDeterministicError
from rewindow.launcher import loop
from rewindow.launcher.verify import compare_groupings, verify_sample
from rewindow.ledger import Ledger
from rewindow.planning import ReplayRequest, draft_plan
from tests.publication.staging import StagedReplay, rows_of, state_of
from tests.recovery.here import jobs_here
from tests.recovery.project import FIRST, Project, make_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A recorded stream."""
    return make_project(tmp_path_factory.mktemp("verify"))


@pytest.fixture
def here(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs run in this process."""
    monkeypatch.setattr(loop, "run", jobs_here(spark))


@pytest.mark.parametrize(("tolerance", "verdict"), [(1e-9, "different"), (1e-3, "equal within tolerance")])
def test_floats_are_compared_within_the_declared_tolerance(tmp_path: Path, tolerance: float, verdict: str) -> None:
    """Two groupings whose floats alone differ are not verified, unless the output declares that they may."""
    config = Config(state=tmp_path)
    for name, share in (("one", 1.0), ("many", 1.0001)):
        replay = StagedReplay(config, name, FIRST, FIRST + 1, tolerance=tolerance)
        rows = rows_of(range(FIRST, FIRST + 2))
        rows["ranks"][FIRST + 1][0]["share"] = share
        replay.group(FIRST, FIRST + 1, rows, state=state_of(1)).end(ledger=False)
    if verdict == "different":
        with pytest.raises(NotDeterministicError, match=f'output "ranks" of window {FIRST + 1} depends on') as raised:
            compare_groupings(config, ["one", "many"])
        assert "'share': 1.0001" in raised.value.detail
    else:
        assert compare_groupings(config, ["one", "many"]).verdict == verdict


def verify(project: Project, application: str, mode: str = "exactly_once") -> None:
    request = ReplayRequest(application, mode=mode)
    verify_sample(project.config, request, draft_plan(project.config, request), 8, JobScreen())


@pytest.mark.usefixtures("here")
def test_a_sound_application_is_verified(project: Project, capfd: pytest.CaptureFixture[str]) -> None:
    """Both replays go again, and the range is free."""
    verify(project, "totals")
    said = capfd.readouterr()
    assert "verified: 8 windows" in said.err
    assert said.out == "", "the output is the JSON of `plan --json --verify`"
    assert not list((project.config.state / "replays").glob("verify-*"))
    assert {row.state.value for row in Ledger.open(project.config.ledger_url).replays.newest()} == {"abandoned"}


@pytest.mark.usefixtures("here")
def test_an_application_of_a_declared_mode_is_verified_in_it(
    project: Project, capfd: pytest.CaptureFixture[str]
) -> None:
    """No other is allowed (R3); its due checkpoints do not cut the one group in pieces."""
    verify(project, "declared", "at_least_once")
    said = capfd.readouterr().err
    assert "verified: 8 windows" in said and f"windows {FIRST} to {FIRST + 7}: 8/8" in said


@pytest.mark.usefixtures("here")
def test_an_application_in_which_groups_show_is_caught(project: Project) -> None:
    """The first window that differs is named: the first is empty, the second the first with numbers (R86)."""
    with pytest.raises(NotDeterministicError, match=f'output "numbered" of window {FIRST + 2} depends on') as error:
        verify(project, "leaky")
    assert "carry what spans windows in the state" in error.value.hint
