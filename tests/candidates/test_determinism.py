"""`rewindow check-determinism`: a sample in several ways, with jobs in this process."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rewindow.candidates.determinism import Determinism, check_determinism, different, ways
from rewindow.certificate import certify
from rewindow.commands.screen import JobScreen
from rewindow.errors import NotDeterministicError
from rewindow.launcher import loop
from rewindow.ledger import Ledger
from rewindow.settings.config import Config
from tests.publication.staging import StagedReplay, rows_of, state_of
from tests.recovery.here import jobs_here
from tests.recovery.project import FIRST, Project, make_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEED = 7


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return make_project(tmp_path_factory.mktemp("verify"))


@pytest.fixture
def here(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs run in this process."""
    monkeypatch.setattr(loop, "run", jobs_here(spark))


def verify(
    project: Project,
    application: str,
    mode: str = "exactly_once",
    properties: dict[str, str] | None = None,
) -> Determinism:
    return check_determinism(
        project.config,
        application,
        sample_windows=8,
        seed=SEED,
        listener=JobScreen(),
        mode=mode,
        properties=properties or {},
    )


@pytest.mark.long
@pytest.mark.usefixtures("here")
def test_deterministic_application_is_verified_and_its_seed_is_reported(
    project: Project,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    found = verify(project, "totals")
    assert found.to_json()["ways"] == [
        {"way": f"in groups of {found.ways[0][0].split()[-1]}", "verdict": "equal"},
        {"way": "with its rows in another order", "verdict": "equal"},
    ]
    assert (found.seed, found.windows) == (SEED, (FIRST, FIRST + 7))
    assert re.search("verified: 8 windows with [0-9]+ tuples are equal", caplog.text)
    assert capfd.readouterr().out == "", "the output is the JSON of `plan --json --verify`"
    assert not list((project.config.state / "replays").glob("verify-*"))
    assert {row.state.value for row in Ledger.open(project.config.ledger_url).replays.newest()} == {
        "abandoned"
    }


@pytest.mark.long
@pytest.mark.usefixtures("here")
def test_application_is_verified_in_its_declared_mode(
    project: Project,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Rules: R3
    caplog.set_level(logging.INFO)
    verify(project, "declared", "at_least_once")
    assert "verified: 8 windows" in caplog.text
    assert f"windows {FIRST} to {FIRST + 7}: 8/8" in capfd.readouterr().err


@pytest.mark.long
@pytest.mark.usefixtures("here")
def test_application_that_depends_on_grouping_is_detected(project: Project) -> None:
    # Rules: R86
    with pytest.raises(
        NotDeterministicError,
        match='port "out" of operator "numbered" depends on where',
    ) as error:
        verify(project, "leaky")
    assert (
        f"first in window {FIRST + ways(8, SEED)[1].group_windows}" in str(error.value)
        and f"--seed {SEED}" in error.value.detail
    )
    assert "keep values that span windows in the state" in error.value.hint


@pytest.mark.long
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("fault", "said"),
    [("order", "depends on the order of rows"), ("chance", "differs when it is computed again")],
)
def test_faulty_operator_is_reported_even_if_it_is_not_an_output(
    project: Project,
    fault: str,
    said: str,
) -> None:
    # Rules: O140, O28
    # Random results are distinguished from results that depend on the grouping.
    with pytest.raises(
        NotDeterministicError,
        match=f'port "numbered" of operator "numbering" {said}',
    ):
        verify(project, "unsteady", properties={"numbering.fault": fault})
    assert not list((project.config.state / "replays").glob("verify-*"))


@pytest.mark.parametrize(
    ("tolerance", "verdict"),
    [(1e-9, "different"), (1e-3, "equal within tolerance")],
)
def test_floats_are_compared_within_the_declared_tolerance(
    tmp_path: Path,
    tolerance: float,
    verdict: str,
) -> None:
    config = Config(state=tmp_path)
    for name, share in (("one", 1.0), ("many", 1.0001)):
        replay = StagedReplay(config, name, FIRST, FIRST + 1, tolerance=tolerance)
        rows = rows_of(range(FIRST, FIRST + 2))
        rows["ranks"][FIRST + 1][0]["share"] = share
        replay.group(FIRST, FIRST + 1, rows, state=state_of(1)).end(ledger=True)
    way = ways(8, SEED)[1]
    certificate = certify(config, "one", "many")
    assert certificate.verdict == verdict
    if verdict == "different":
        error = different(config, certificate, "one", way, SEED)
        assert (
            f'port "out" of operator "ranks_operator" {way.why}: first in window {FIRST + 1}'
            in str(error)
        )
        assert "'share': 1.0001" in error.detail
