"""Registers the links of operators, the menu entry, the tab of runs and their pages with Airflow,
through the entry point `airflow.plugins`.

Every task loads it during its start, so it only imports modules that tasks import anyway, and none
of Airflow's core.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk.plugins_manager import AirflowPlugin

from rewindow_airflow.links import PREFIX, REPLAY_LINKS, ReportsLink, TimeLink, address

ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 24 24' "
    "fill='%234a86c8'%3E%3Cpath d='M12 5V2L7 6l5 4V7a6 6 0 1 1-6 6H4a8 8 0 1 0 8-8z'/%3E%3C/svg%3E"
)


class RewindowPlugin(AirflowPlugin):
    """The plugin class that Airflow loads."""

    name = "rewindow"
    operator_extra_links = [*REPLAY_LINKS, ReportsLink(), TimeLink()]
    external_views = [
        {
            "name": "Rewindow",
            "href": address("overview"),
            "url_route": "rewindow",
            "nav_top_level": True,
            "icon": ICON,
        },
        {
            "name": "Rewindow",
            "href": address("runs?dag={DAG_ID}&run={RUN_ID}"),
            "destination": "dag_run",
            "url_route": "rewindow_run",
        },
    ]

    @property
    def fastapi_apps(self) -> list[dict[str, Any]]:
        """The web application. It is a property, so that only the API server imports it."""
        from rewindow_airflow.outdated_questions import remove_outdated_questions
        from rewindow_airflow.pages import make_app
        from rewindow_airflow.pool import ensure_pool

        ensure_pool()
        remove_outdated_questions()
        return [{"app": make_app(), "url_prefix": PREFIX, "name": "Rewindow"}]
