"""Buttons on a task's page that open the plugin's pages: replay, window report, Data Docs,
certificate, reports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote, urlsplit

from airflow.sdk import BaseOperatorLink
from airflow.sdk.configuration import conf

from rewindow.names import whole_replay

if TYPE_CHECKING:
    from airflow.models.taskinstancekey import TaskInstanceKey
    from airflow.sdk import BaseOperator, Context

PREFIX = "/rewindow"


class OfReplay(Protocol):
    """The attributes of a task for one replay."""

    replay: str


class OfStream(Protocol):
    """The attributes of a task for one stream."""

    stream: str


def airflow_path() -> str:
    """Returns the path of Airflow on its host, from [api] base_url, without a slash at the end."""
    return urlsplit(conf.get("api", "base_url", fallback="")).path.rstrip("/")


def address(path: str) -> str:
    """Returns the address of one of the plugin's pages on Airflow's host, relative to the path of
    [api] base_url.
    """
    return f"{airflow_path()}{PREFIX}/{path}"


def absolute_link(dag: str, run: str, replay: str) -> str:
    """Returns the complete address of the page of a replay, or of a DAG run without a replay, or of
    the overview.

    It starts with [api] base_url, so a reader outside of Airflow can open it.
    """
    if replay:
        path = f"{PREFIX}/replays/{quote(whole_replay(replay), safe='')}/page"
    elif run:
        path = f"/dags/{quote(dag, safe='')}/runs/{quote(run, safe='')}"
    else:
        path = f"{PREFIX}/overview"
    return f"{conf.get('api', 'base_url', fallback='').rstrip('/')}{path}"


def push_links(operator: OfReplay, context: Context) -> None:
    """Shows the links of a task while it runs or waits.

    Airflow itself stores links when a try ends, and deletes them when the next try starts.
    """
    for link in REPLAY_LINKS:
        if found := link.address_of(operator.replay):
            context["ti"].xcom_push(key=link.xcom_key, value=found)


class ReplayLink(BaseOperatorLink):
    """A link to the page of the task's replay, with timeline, windows, gate and certificates."""

    name = "Replay"
    page = "page"

    def get_link(self, operator: OfReplay, *, ti_key: TaskInstanceKey) -> str:
        """Returns an address on Airflow's host; empty for a task without a replay.

        Airflow calls this when a task ends.
        """
        return self.address_of(operator.replay)

    def address_of(self, replay_id: str) -> str:
        """Returns the address of the page for a replay or one of its containers; empty without a
        replay.
        """
        whole = whole_replay(replay_id)
        return address(f"replays/{quote(whole, safe='')}/{self.page}") if whole else ""


class WindowReportLink(ReplayLink):
    """A link to the window report, which has one row for every window of the range."""

    name = "Window report"
    page = "report"


class DataDocsLink(ReplayLink):
    """A link to the Data Docs of Great Expectations for the replay's gate."""

    name = "Data Docs"
    page = "docs"


class CertificateLink(ReplayLink):
    """A link to the certificate of the replay."""

    name = "Certificate"
    page = "certificate"


class ReportsLink(BaseOperatorLink):
    """A link to the report site with the checks of all outputs over time."""

    name = "Reports"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Returns an address on Airflow's host."""
        return address("files/quality/index.html")


class TimeLink(BaseOperatorLink):
    """A link to the page about a stream's time, with gaps and delays of tuples."""

    name = "Time of the stream"

    def get_link(self, operator: OfStream, *, ti_key: TaskInstanceKey) -> str:
        """Returns an address on Airflow's host."""
        return address(f"streams/{quote(operator.stream, safe='')}/time")


REPLAY_LINKS = (ReplayLink(), WindowReportLink(), DataDocsLink(), CertificateLink())
