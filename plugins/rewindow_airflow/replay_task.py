"""The common part of all tasks of a replay."""

from __future__ import annotations

from rewindow_airflow.links import REPLAY_LINKS


class ReplayTask:
    """The common part of all tasks of a replay: the replay's id, which the plan task passes on, and
    the links to its pages.
    """

    replay: str
    operator_extra_links = REPLAY_LINKS
