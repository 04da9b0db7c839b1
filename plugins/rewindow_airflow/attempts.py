"""Prepares the command of one attempt with the launcher, for the Spark cluster of an Airflow
connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowNotFoundException,
    AirflowRuntimeError,
)

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from rewindow.launcher import Submission
    from rewindow.settings.config import Config


def begin_replay(
    config: Config,
    name: str,
    arguments: dict[str, Any],
    again: bool,
) -> Submission | None:
    """Starts the next epoch of a replay and returns its attempt; None if all windows are
    committed.
    """
    from rewindow.launcher import begin_attempt

    crash = arguments.get("crash") if config.replay.drills else None
    return begin_attempt(config, name, crash=crash or None, again=again)


def begin_publish(config: Config, name: str, arguments: dict[str, Any], again: bool) -> Submission:
    """Returns the job that publishes a replay, or completes a publication that a killed job has
    left open.

    Raises:
        InputError: this is a retry, and a user has undone the publication since.
    """
    from rewindow.errors import InputError
    from rewindow.launcher import plain_submission
    from rewindow.ledger import Ledger, ReplayState

    state = Ledger.open(config.ledger_url).replays.get(name).state
    if state is ReplayState.UNDONE and not again:
        raise InputError(
            f'publication of replay "{name}" was undone, so a retry does not publish it again',
            hint=f"To publish it again: rewindow publish {name}.",
        )
    options = ["--replay", name]
    for option in ("accept", "who"):
        if arguments.get(option):
            # As one word, because a text may start with a dash.
            options.append(f"--{option}={arguments[option]}")
    return plain_submission(config, "publish.py", options, subject=name)


def begin_record(config: Config, name: str, arguments: dict[str, Any], again: bool) -> Submission:
    """Returns the job that records new tuples of a stream, and seals it up to the end of the run's
    interval.
    """
    from rewindow.launcher import plain_submission

    bound = sealing_bound(config, name, str(arguments.get("sealed_to") or ""))
    return plain_submission(config, "record.py", ["--stream", name, *bound], subject=name)


def sealing_bound(config: Config, name: str, interval_end: str) -> list[str]:
    """Returns arguments that limit how far a job seals, so that a silent stream is sealed too.

    Without an interval, the newest tuple determines the limit. `sealed_to` in rewindow.toml takes
    precedence over the interval. Tuples that are fed back arrive during the run, so the interval
    does not apply to them.
    """
    from rewindow.recording.sources.source import ERRORS
    from rewindow.windows import format_time, parse_time

    stream = config.stream(name)
    if not interval_end or stream.sealed_to or stream.source.startswith(ERRORS):
        return []
    return ["--sealed-to", format_time(parse_time(interval_end) - stream.seal_after_us)]


BEGINNINGS: dict[str, Callable[[Config, str, dict[str, Any], bool], Submission | None]] = {
    "replay": begin_replay,
    "publish": begin_publish,
    "record": begin_record,
}
"""Job to the function that starts one attempt of it. Arguments: settings, the replay or stream, the
task's arguments, and whether a user has requested another attempt by clearing the task.
"""


def settings_for(conn_id: str) -> Config:
    """Returns the current settings with the Spark of an Airflow connection instead of the Spark in
    the file.

    Raises:
        AirflowFailException: the connection requires that the driver runs on another machine than
            the task.
    """
    from airflow.sdk import BaseHook

    from rewindow.settings.config import Config

    config = Config.load()
    try:
        connection = BaseHook.get_connection(conn_id)
    except (AirflowNotFoundException, AirflowRuntimeError):
        return config
    return with_connection(config, connection)


def with_connection(config: Config, connection: Connection) -> Config:
    """Returns settings with the Spark of a connection: its master from host and port, queue and
    Kerberos settings from the extras.
    """
    extra = connection.extra_dejson
    if extra.get("deploy-mode", "client") != "client":
        raise AirflowFailException(
            f'deploy mode of connection "{connection.conn_id}" must be "client", not '
            f'"{extra["deploy-mode"]}"\n'
            "  Hint: The driver must run on the machine of the task, which shows its log and stops "
            "it: remove deploy-mode."
        )
    keys = {
        "queue": "spark.yarn.queue",
        "principal": "spark.kerberos.principal",
        "keytab-path": "spark.kerberos.keytab",
    }
    conf = config.spark.conf | {
        keys[name]: str(value) for name, value in extra.items() if name in keys
    }
    spark = config.spark.model_copy(
        update={"master": master_of(connection) or config.spark.master, "conf": conf}
    )
    changed = config.model_copy(update={"spark": spark})
    changed._root = config.root
    return changed


def master_of(connection: Connection) -> str:
    """Returns the Spark master of a connection, as the Spark provider interprets it; empty if there
    is none.
    """
    host = connection.host or ""
    if not host:
        return ""
    if connection.conn_type != "spark" and "://" not in host:
        host = f"{connection.conn_type}://{host}"
    elif connection.port and "://" not in host:
        host = f"spark://{host}"
    return f"{host}:{connection.port}" if connection.port else host
