"""Attempts in this process, which a test can end at any step of the protocol."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rewindow.crash import Step
from rewindow.engine.attempt import Attempt
from rewindow.engine.computation import PlannedAttempt
from rewindow.engine.spark_engine import spark_attempt
from rewindow.ledger import Ledger
from rewindow.loading.catalog import load_application
from rewindow.loading.suites import replay_measures
from rewindow.planning import ReplayRequest, create_replay
from tests.recovery.project import GROUP, make_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Crash(Exception):
    """Stands for a kill, in a process that goes on."""


@pytest.fixture
def attempt(tmp_path: Path, spark: SparkSession) -> Callable[..., Attempt]:
    """Returns what makes the next attempt of a replay, ready to run."""
    config = make_project(tmp_path).config

    def make(
        application: str,
        replay_id: str,
        dies_at: tuple[Step, int] | None = None,
        **replay_options: Any,
    ) -> Attempt:
        stop = replay_options.pop("stop", lambda: False)
        inline_state_bytes = replay_options.pop("inline_state_bytes", None)
        replay_options = {"group_windows": GROUP, **replay_options}
        plan = create_replay(
            config,
            ReplayRequest(application, replay_id=replay_id, **replay_options),
        )
        ledger = Ledger.open(config.ledger_url)
        epoch = ledger.attempts.next_epoch(replay_id)
        ledger.attempts.begin(
            replay_id,
            epoch,
            host="h",
            pid=1,
            process_group=1,
            process_identity="boot/0",
        )
        app = load_application(config, application, {}).app
        root = config.replay_root(replay_id)

        def crash(step: Step, number: int) -> None:
            if dies_at == (step, number):
                raise Crash

        inline = (
            inline_state_bytes
            if inline_state_bytes is not None
            else config.replay.inline_state_bytes
        )
        measures = replay_measures(config.expectations, plan, app)
        return spark_attempt(
            PlannedAttempt(plan, app, root, epoch),
            ledger,
            lambda: spark,
            inline,
            measures,
            stop=stop,
            crash=crash,
        )

    make.config = config  # type: ignore[attr-defined]
    return make
