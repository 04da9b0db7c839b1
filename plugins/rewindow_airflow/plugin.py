"""Registers Rewindow with Airflow, by the entry point `airflow.plugins`: operators' links and the
pages behind them.

Every task loads it when it starts, so it imports what tasks have already, and nothing of Airflow's
core.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk.plugins_manager import AirflowPlugin

from rewindow_airflow.links import PREFIX, REPLAY_LINKS, ReportsLink, TimeLink


class RewindowPlugin(AirflowPlugin):
    """What Airflow asks for when it loads plugins."""

    name = "rewindow"
    operator_extra_links = [*REPLAY_LINKS, ReportsLink(), TimeLink()]

    @property
    def fastapi_apps(self) -> list[dict[str, Any]]:
        """The web application; a property, so that only the API server imports it."""
        from rewindow_airflow.pages import make_app

        return [{"app": make_app(), "url_prefix": PREFIX, "name": "Rewindow"}]
