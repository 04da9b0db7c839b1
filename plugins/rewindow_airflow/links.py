"""Buttons of a task's page: replay, window report, Data Docs, certificate. They lead to the plugin's own pages."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.models.taskinstancekey import TaskInstanceKey

    from rewindow_airflow.operators import ReplayTask

PREFIX = "/rewindow"


class ReplayLink(BaseOperatorLink):
    """Leads to the page of the replay that a task works on: timeline, windows, gate, certificates."""

    name = "Replay"
    page = "page"

    def get_link(self, operator: ReplayTask, *, ti_key: TaskInstanceKey) -> str:
        """Returns an address on Airflow's own host, empty for a task without a replay; called when a task ends."""
        return f"{PREFIX}/replays/{quote(operator.replay, safe='')}/{self.page}" if operator.replay else ""


class WindowReportLink(ReplayLink):
    """Leads to the window report: a row for every window of the range."""

    name = "Window report"
    page = "report"


class DataDocsLink(ReplayLink):
    """Leads to Great Expectations' Data Docs of the replay's gate."""

    name = "Data Docs"
    page = "docs"


class CertificateLink(ReplayLink):
    """Leads to the replay's certificate."""

    name = "Certificate"
    page = "certificate"


REPLAY_LINKS = (ReplayLink(), WindowReportLink(), DataDocsLink(), CertificateLink())
