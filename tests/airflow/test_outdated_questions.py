"""Airflow keeps the text of a task's first question. A cleared task of Rewindow asks a new one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from airflow.models.hitl import HITLDetail
from airflow.models.hitl_history import HITLDetailHistory
from airflow.utils.session import create_session
from sqlalchemy import func, select

from rewindow.settings.config import Config
from rewindow_airflow.outdated_questions import remove_outdated_questions
from tests.airflow.conftest import in_force


@pytest.mark.parametrize(
    ("operator", "left"), [("ApproveActOperator", 0), ("OperatorOfAnotherPackage", 1)]
)
def test_question_of_an_earlier_try_is_only_in_the_history(
    operator: str, left: int, dags: Mapping[str, Any], project: Config
) -> None:
    remove_outdated_questions()
    with in_force(project):
        form = {"act": "undo", "replay": "none", "reason": "does not exist"}
        run = dags["act_on_replay"].test(run_conf=form)
    [instance] = (one for one in run.get_task_instances() if one.task_id == "approve_act")
    with create_session() as session:
        cleared = session.merge(instance)
        cleared.operator, cleared.try_number = operator, 1
        answered = HITLDetail(ti_id=cleared.id, options=["Approve"], subject="?", body="one lost")
        session.add(answered)
        session.flush()
        before = cleared.id
        cleared.prepare_db_for_next_try(session)
        session.commit()
        assert cleared.id != before
        of_task = HITLDetail.ti_id == cleared.id
        assert session.scalar(select(func.count()).where(of_task)) == left
        of_try = HITLDetailHistory.ti_history_id == before
        assert session.scalar(select(HITLDetailHistory.body).where(of_try)) == "one lost"
