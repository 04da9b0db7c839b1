"""Adds to the hint of an error the action in Airflow that does the same as its command."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

_NAME = r"(?P<name>[\w@.-]*[\w@-])"


def _act(found: re.Match[str]) -> str:
    return f"start the DAG act_on_replay with action {found['act']} and replay {found['name']}"


_ACTS: Mapping[str, Callable[[re.Match[str]], str]] = {
    rf"rewindow (?P<act>publish|undo|abandon) {_NAME}": _act,
    rf"rewindow (?P<act>certify) published {_NAME}": _act,
    rf"rewindow replay --resume {_NAME}": lambda found: (
        "clear the task replay_windows of its run, or start the DAG act_on_replay with action "
        f"resume and replay {found['name']}"
    ),
    rf"rewindow replay (?!--){_NAME}": lambda found: (
        f"start the DAG replay_windows with application {found['name']}"
    ),
    rf"rewindow check {_NAME}": lambda _: "clear the task check_windows of its run",
    rf"rewindow record {_NAME} --reopen --replace": lambda found: (
        f"start the DAG act_on_stream with action replace and stream {found['name']}"
    ),
    rf"rewindow record {_NAME} --reopen(?! --replace)": lambda found: (
        f"start the DAG act_on_stream with action reopen and stream {found['name']}"
    ),
    rf"rewindow record {_NAME}(?! --reopen)\b": lambda _: "run the DAG record_streams",
    r"rewindow repair --run": lambda _: "start the DAG act_on_stream with action repair",
    r"rewindow purge": lambda _: "start the DAG purge_replays",
}
_HINT = re.compile(r"(\s*)Hint: ")


PLAN_AGAIN = (
    "clear the plan task of the run with its downstream tasks; it abandons this replay and plans "
    "again with the current code"
)
"""The next step after the code of an application has changed."""


def in_airflow(message: str, act: str = "") -> str:
    r"""Returns an error's message with a line before its hint that names the action in Airflow.

    Without `act`, the commands in the hint determine the line. A message without a command in its
    hint is returned unchanged.

    >>> print(in_airflow('replay "r-1" is published\n  Hint: Undo it first: rewindow undo r-1'))
    replay "r-1" is published
      In Airflow: start the DAG act_on_replay with action undo and replay r-1.
      Hint: Undo it first: rewindow undo r-1
    """
    shown = []
    for line in message.split("\n"):
        hint = _HINT.match(line)
        if hint and (words := act or acts_for(line)):
            shown.append(f"{hint[1]}In Airflow: {words}.")
        shown.append(line)
    return "\n".join(shown)


def acts_for(hint: str) -> str:
    """Returns the actions that do the same as the commands of a hint, in their order."""
    acts: dict[int, str] = {}
    for pattern, words in _ACTS.items():
        for found in re.finditer(pattern, hint):
            acts.setdefault(found.start(), words(found))
    return "; or ".join(dict.fromkeys(acts[start] for start in sorted(acts)))
