"""The part that all tasks of one replay share."""

from __future__ import annotations

from rewindow_airflow.links import REPLAY_LINKS


class ReplayTask:
    """What all tasks of a replay share: its id, which the task that plans it hands on, and the
    links to its pages.
    """

    replay: str
    operator_extra_links = REPLAY_LINKS
