"""Registers the links of operators and their pages with Airflow, through the entry point
`airflow.plugins`.

Every task loads it during its start, so it only imports modules that tasks import anyway, and none
of Airflow's core.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk.plugins_manager import AirflowPlugin

from rewindow_airflow.links import PREFIX, REPLAY_LINKS, ReportsLink, TimeLink


class RewindowPlugin(AirflowPlugin):
    """The plugin class that Airflow loads."""

    name = "rewindow"
    operator_extra_links = [*REPLAY_LINKS, ReportsLink(), TimeLink()]

    @property
    def fastapi_apps(self) -> list[dict[str, Any]]:
        """The web application. It is a property, so that only the API server imports it."""
        from rewindow_airflow.pages import make_app
        from rewindow_airflow.pool import ensure_pool

        ensure_pool()
        return [{"app": make_app(), "url_prefix": PREFIX, "name": "Rewindow"}]
