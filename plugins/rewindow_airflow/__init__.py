"""Rewindow for Airflow: the functions that a custom DAG file imports. They are fast to import.

from rewindow_airflow import check, interval_dag, plan_interval, publish, replay

with interval_dag("replay_clicks", application="clicks_by_page", schedule="@hourly"):
    plan = plan_interval()
    plan >> replay(plan) >> check(plan) >> publish(plan)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rewindow_airflow.assets import stream_asset
    from rewindow_airflow.factories import (
        act_dag,
        approve,
        approve_act,
        build_report_site,
        check,
        close_replay,
        close_unstarted,
        deliver,
        drill,
        drill_dag,
        emit_publications,
        form_dag,
        interval_dag,
        notify_conditions,
        plan_filling,
        plan_form,
        plan_interval,
        plan_steps,
        plan_unpublished,
        preview_act,
        publish,
        record,
        repair,
        replay,
        replay_steps,
        report_gaps,
        run_act,
        scheduled_dag,
        stream_dag,
    )

__all__ = [
    "act_dag",
    "approve",
    "approve_act",
    "build_report_site",
    "check",
    "close_replay",
    "close_unstarted",
    "deliver",
    "drill",
    "drill_dag",
    "emit_publications",
    "form_dag",
    "interval_dag",
    "notify_conditions",
    "plan_filling",
    "plan_form",
    "plan_interval",
    "plan_steps",
    "plan_unpublished",
    "preview_act",
    "publish",
    "record",
    "repair",
    "replay",
    "replay_steps",
    "report_gaps",
    "run_act",
    "scheduled_dag",
    "stream_asset",
    "stream_dag",
]


def __getattr__(name: str) -> Any:
    """Imports a factory on its first use, because Airflow imports this package during its start."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(
        import_module(f"rewindow_airflow.{'assets' if name == 'stream_asset' else 'factories'}"),
        name,
    )
