"""Rebuilds the report site from the results of all gates over time: which output passed when, and what failed.

The site is served behind Airflow's login at `/rewindow/files/quality/index.html`; the button Reports of the task leads
there.
"""

from __future__ import annotations

from airflow.sdk import DAG

from rewindow_airflow.policy import DEFAULT_ARGS, SINCE
from rewindow_airflow.steps import BuildReportSiteOperator

with DAG(
    dag_id="expectation_reports",
    doc_md=__doc__,
    schedule="@daily",
    start_date=SINCE,
    catchup=False,
    max_active_runs=1,
    default_args=DEFAULT_ARGS,
    tags=["rewindow", "quality"],
):
    BuildReportSiteOperator(task_id="build_report_site")
