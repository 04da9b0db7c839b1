"""Removes the question of an earlier try, so that a task that is cleared or retried asks a new one.

Airflow stores one question per task instance, and keeps its text in later tries. A user would then
decide about a replay with the facts about another one, or about tables that have changed since.
"""

from __future__ import annotations

from typing import Any

_OPERATORS = ("ApproveActOperator", "ApprovePublicationOperator", "RepairOperator")


def remove_outdated_questions() -> None:
    """Registers a listener that removes a question when Airflow stores it in the history.

    The API server and the scheduler call this, because they store the history.
    """
    from airflow.models.hitl_history import HITLDetailHistory
    from sqlalchemy import event

    if not event.contains(HITLDetailHistory, "init", _remove):
        event.listen(HITLDetailHistory, "init", _remove)


def _remove(_history: Any, arguments: tuple[Any, ...], _options: dict[str, Any]) -> None:
    from airflow.models.hitl import HITLDetail
    from sqlalchemy import delete
    from sqlalchemy.orm import object_session

    question = arguments[0]
    session = object_session(question)
    if session is None or question.task_instance.operator not in _OPERATORS:
        return
    # The history still reads the attributes of the question, so they must stay loaded.
    step = delete(HITLDetail).where(HITLDetail.ti_id == question.ti_id)
    session.execute(step, execution_options={"synchronize_session": False})
