"""Asset events of publications: each one is emitted at least once, whichever process made it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from airflow.dag_processing.bundles.manager import DagBundlesManager

from rewindow.ledger import Ledger
from rewindow.publication.undo import undo
from rewindow.settings.config import Config
from rewindow_airflow import assets
from tests.airflow.conftest import assert_success, in_force
from tests.airflow.small_project import FIRST_DAY
from tests.airflow.test_runs import dag_of
from tests.delivery.test_deliver import STREAM, published

EMITTING = '''
from airflow.sdk.exceptions import AirflowFailException

from rewindow.ledger import Emitter, Ledger
from rewindow.settings.config import Config
from rewindow_airflow import scheduled_dag
from rewindow_airflow.assets import PUBLICATIONS
from rewindow_airflow.steps import EmitPublicationsOperator


class Failing(EmitPublicationsOperator):
    """Fails after it has recorded itself as the emitter."""

    def execute(self, context):
        super().execute(context)
        raise AirflowFailException("killed before it has ended")


class Reserving(EmitPublicationsOperator):
    """Records a task that has not run yet as the emitter."""

    def execute(self, context):
        later = Emitter(context["ti"].dag_id, context["ti"].run_id, "emit_later", -1)
        assert Ledger.open(Config.load().ledger_url).outbox.take(1, later, None)
        super().execute(context)


with scheduled_dag("emitting"):
    {tasks}
'''


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Config]:
    """Settings in force, with two publications in a shell and the undo of the second one.

    The ids of the replays are new, since all tests share an Airflow.
    """
    (tmp_path / "rewindow.toml").write_text('state = "state"\n')
    config = Config.load(tmp_path / "rewindow.toml")
    with in_force(config):
        new = uuid4().hex
        published(config, f"delays-1-{new}", 100, 109, seed=1)
        published(config, f"delays-2-{new}", 105, 112, seed=2)
        undo(config, f"delays-2-{new}")
        yield config


@pytest.fixture
def newest(airflow_database: None) -> int:
    """Number of events in Airflow before the test."""
    return len(events(0))


def test_publications_and_undos_of_a_shell_are_emitted_once(
    dags: Mapping[str, Any],
    config: Config,
    newest: int,
) -> None:
    emit(dags, 1)
    first, second, third = (extra for _, extra in events(newest))
    acts = [(one["publication"], one["act"], one["replay"][:8]) for one in (first, second, third)]
    assert acts == [(1, "publish", "delays-1"), (2, "publish", "delays-2"), (3, "undo", "delays-2")]
    assert {key: value for key, value in third.items() if key != "tuples"} == {
        "application": "flight_delays",
        "replay": second["replay"],
        "publication": 3,
        "act": "undo",
        "first": 105,
        "last": 112,
        "from": "1970-01-05T09:00:00Z",
        "to": "1970-01-05T17:00:00Z",
        "windows": 5,  # Those of the first publication are visible again.
    }
    emit(dags, 2)
    assert Ledger.open(config.ledger_url).outbox.waiting(100) == []
    emit(dags, 3)
    assert len(events(newest)) == 3


def test_full_outbox_does_not_wait_for_publications_that_are_already_emitted(
    dags: Mapping[str, Any],
    config: Config,
    newest: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(assets, "_PUBLICATIONS_MAX", 1)
    for number in (1, 2, 3):
        emit(dags, 10 + number)
        assert [extra["publication"] for _, extra in events(newest)] == [1, 2, 3][:number]


@pytest.mark.parametrize("afterwards", ["", "marked as success", "deleted"])
def test_publication_is_emitted_again_if_its_emitter_failed(
    dags: Mapping[str, Any],
    config: Config,
    newest: int,
    tmp_path: Path,
    afterwards: str,
) -> None:
    from airflow.utils.session import create_session

    run = run_of(tmp_path, 'Failing(task_id="emit_now", outlets=[PUBLICATIONS])')
    assert run.state == "failed" and events(newest) == []
    with create_session() as session:
        if afterwards == "deleted":
            session.delete(session.merge(run))
        elif afterwards:
            session.merge(run.get_task_instance("emit_now")).state = "success"
    [task] = {emitter for _, emitter in Ledger.open(config.ledger_url).outbox.waiting(100)}
    assert task is not None and task.task_id == "emit_now"
    emit(dags, 4)
    assert [extra["publication"] for _, extra in events(newest)] == [1, 2, 3]


def test_publication_is_left_to_an_emitter_that_may_still_succeed(
    config: Config,
    newest: int,
    tmp_path: Path,
) -> None:
    tasks = (
        'Reserving(task_id="emit_first", outlets=[PUBLICATIONS]) >> '
        'EmitPublicationsOperator(task_id="emit_later", outlets=[PUBLICATIONS])'
    )
    assert_success(run_of(tmp_path, tasks))
    found = [(task, extra["publication"]) for task, extra in events(newest)]
    assert found == [("emit_first", 2), ("emit_first", 3), ("emit_later", 1)]


def test_task_without_the_outlet_leaves_publications_to_other_tasks(
    config: Config,
    newest: int,
    tmp_path: Path,
) -> None:
    assert_success(run_of(tmp_path, 'EmitPublicationsOperator(task_id="emit_nothing")'))
    waiting = Ledger.open(config.ledger_url).outbox.waiting(100)
    assert [emitter for _, emitter in waiting] == [None] * 3 and events(newest) == []


def test_publication_of_a_lost_table_is_emitted_without_counts(
    dags: Mapping[str, Any],
    config: Config,
    newest: int,
) -> None:
    shutil.rmtree(str(config.windows_table(STREAM)))
    emit(dags, 6)
    found = [(extra["publication"], extra["windows"]) for _, extra in events(newest)]
    assert found == [(1, None), (2, None), (3, None)]


def emit(dags: Mapping[str, Any], number: int) -> None:
    date = FIRST_DAY + timedelta(minutes=number)
    assert_success(dags["emit_publications"].test(logical_date=date))


def run_of(folder: Path, tasks: str) -> Any:
    DagBundlesManager().sync_bundles_to_db()
    return dag_of(folder, EMITTING.replace("{tasks}", tasks)).test()


def events(start: int, stream: str = STREAM) -> list[tuple[str, dict[str, Any]]]:
    """Returns the task and the extra of the events of a stream in Airflow, from the one with an
    index on, oldest first.
    """
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.utils.session import create_session

    with create_session() as session:
        found = session.query(AssetEvent).join(AssetModel, AssetModel.id == AssetEvent.asset_id)
        its = found.filter(AssetModel.uri == f"rewindow://streams/{stream}")
        rows = its.order_by(AssetEvent.id).all()
        return [(str(row.source_task_id), dict(row.extra)) for row in rows[start:]]
