"""Rebuilds the report site from the results of all gates over time: which output passed when, and
what failed.

The site is served behind Airflow's login at `/rewindow/files/quality/index.html`; the button
Reports of the task leads there.
"""

from rewindow_airflow import build_report_site, scheduled_dag

with scheduled_dag("expectation_reports", doc_md=__doc__, tags=["quality"]):
    build_report_site()
