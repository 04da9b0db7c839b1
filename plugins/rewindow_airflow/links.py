"""Buttons on a task's page: replay, window report, Data Docs, certificate, reports. They open the
plugin's pages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote, urlsplit

from airflow.sdk import BaseOperatorLink
from airflow.sdk.configuration import conf

from rewindow.names import whole_replay

if TYPE_CHECKING:
    from airflow.models.taskinstancekey import TaskInstanceKey
    from airflow.sdk import BaseOperator

PREFIX = "/rewindow"


class OfReplay(Protocol):
    """A task about one replay."""

    replay: str


class OfStream(Protocol):
    """A task about one stream."""

    stream: str


def address(path: str) -> str:
    """Returns the address of one of the plugin's pages on Airflow's own host, below the path of
    [api] base_url.
    """
    base = urlsplit(conf.get("api", "base_url", fallback="")).path.rstrip("/")
    return f"{base}{PREFIX}/{path}"


class ReplayLink(BaseOperatorLink):
    """Link to the page of the replay that a task works on: timeline, windows, gate,
    certificates.
    """

    name = "Replay"
    page = "page"

    def get_link(self, operator: OfReplay, *, ti_key: TaskInstanceKey) -> str:
        """Returns an address on Airflow's host, empty for a task without a replay. Airflow calls it
        when a task ends.
        """
        whole = whole_replay(operator.replay)
        return address(f"replays/{quote(whole, safe='')}/{self.page}") if whole else ""


class WindowReportLink(ReplayLink):
    """Link to the window report, which has a row for every window of the range."""

    name = "Window report"
    page = "report"


class DataDocsLink(ReplayLink):
    """Link to Great Expectations' Data Docs of the replay's gate."""

    name = "Data Docs"
    page = "docs"


class CertificateLink(ReplayLink):
    """Link to the replay's certificate."""

    name = "Certificate"
    page = "certificate"


class ReportsLink(BaseOperatorLink):
    """Link to the report site with the checks of all outputs over time."""

    name = "Reports"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Returns an address on Airflow's host."""
        return address("files/quality/index.html")


class TimeLink(BaseOperatorLink):
    """Link to the page about a stream's time: gaps, and delays of tuples."""

    name = "Time of the stream"

    def get_link(self, operator: OfStream, *, ti_key: TaskInstanceKey) -> str:
        """Returns an address on Airflow's host."""
        return address(f"streams/{quote(operator.stream, safe='')}/time")


REPLAY_LINKS = (ReplayLink(), WindowReportLink(), DataDocsLink(), CertificateLink())
