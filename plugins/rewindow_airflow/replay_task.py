"""The common part of all tasks of a replay."""

from __future__ import annotations

from typing import Any

from rewindow_airflow.links import REPLAY_LINKS


class ReplayTask:
    """The common part of all tasks of a replay: the replay's id, which the plan task passes on, and
    the links to its pages.
    """

    replay: str
    operator_extra_links = REPLAY_LINKS


def was_cleared(instance: Any, retries: int) -> bool:
    """Returns whether this is the very first try, or the first try since a user cleared the task.

    A clear gives a task its full number of retries again, counted from the last try.
    """
    return int(instance.try_number) == int(instance.max_tries) - retries + 1
