"""Access rights.

To see a replay's pages, a user needs the right to read the DAG that created the replay.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.base_auth_manager import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagDetails
from airflow.models.dag import DagModel
from fastapi import HTTPException

from rewindow.errors import InputError, RewindowError
from rewindow.location import Location
from rewindow.names import PUBLISHED, check_replay_id
from rewindow.settings.config import Config

if TYPE_CHECKING:
    from rewindow.ledger import Ledger, Replay

BY_HAND = "replay_windows"
"""The DAG whose rights apply to replays of the command line, and to unknown replays."""
OVER_TIME = "expectation_reports"
"""The DAG whose rights apply to the pages about all replays."""
OF_STREAMS = "fill_heartbeat_gaps"
"""The DAG whose rights apply to the pages about streams."""
_CERTIFICATE = re.compile(r".+--.+-[0-9a-f]{8}\.(html|json)")


def refuse_stranger(config: Config, user: BaseUser, replays: Iterable[str]) -> None:
    """Checks that a user may read the DAGs of the given replays.

    Raises:
        HTTPException: 403.
    """
    refuse_without({dag_of(config, replay_id) for replay_id in replays}, user)


def refuse_without(dags: Iterable[str], user: BaseUser) -> None:
    """Checks that a user may read all of the given DAGs.

    Raises:
        HTTPException: 403.
    """
    for dag_id in sorted(dags):
        if not may_read(dag_id, user):
            raise HTTPException(403, "Forbidden")


def may_read(dag_id: str, user: BaseUser) -> bool:
    """Returns whether a user may read a DAG."""
    details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
    return get_auth_manager().is_authorized_dag(method="GET", details=details, user=user)


def dag_of(config: Config, replay_id: str) -> str:
    """Returns the id of the DAG that created a replay, from the replay's plan in the ledger.

    Does not create a ledger.

    Raises:
        HTTPException: the ledger is older than this Rewindow (409).
    """
    ledger = open_ledger(config)
    if ledger is None:
        return BY_HAND
    try:
        found = ledger.replays.find(replay_id)
        return BY_HAND if found is None else dag_that_made(found)
    finally:
        ledger.close()


def dag_that_made(row: Replay) -> str:
    """Returns the id of the DAG that created a replay, from its plan."""
    return str(row.plan.get("dag") or BY_HAND)


def open_ledger(config: Config) -> Ledger | None:
    """Returns the ledger; None if it does not exist.

    Raises:
        HTTPException: the ledger is older than this Rewindow, or does not answer (409).
    """
    from rewindow.ledger import Ledger
    from rewindow.ledger.url import LedgerUrl

    file = LedgerUrl.parse(config.ledger_url).file
    if file is not None and not file.is_file():
        return None
    try:
        return Ledger.open(config.ledger_url, make=False)
    except RewindowError as error:
        raise HTTPException(409, ". ".join(filter(None, (error.primary, error.hint)))) from error


def dags_of(config: Config, folder: Location, path: PurePosixPath) -> set[str] | None:
    """Returns the DAGs that a user must be allowed to read to see a results file; None if the path
    is unknown.

    Args:
        config: current settings.
        folder: folder of the results.
        path: path of the file in the folder.
    """
    match path.parts:
        case ("quality", "index.html"):
            return {OVER_TIME}
        case ("time", name) if name.endswith((".html", ".csv")):
            return {OF_STREAMS}
    replays = _replays_of(folder, path)
    if replays is None:
        return None
    return {dag_of(config, replay_id) for replay_id in replays} or {OVER_TIME}


def _replays_of(folder: Location, path: PurePosixPath) -> list[str] | None:
    """Returns the replays that a results file is about; None if the path is unknown."""
    match path.parts:
        case ("pages", name) if name.endswith(".html"):
            return _if_id(name.removesuffix(".html"))
        case ("quality", "replays", replay_id, _):
            return _if_id(replay_id)
        case ("certificates", name) if _CERTIFICATE.fullmatch(name):
            return _sides(folder / str(path.with_suffix(".json")))
    return None


def _if_id(text: str) -> list[str] | None:
    try:
        return [check_replay_id(text)]
    except InputError:
        return None


def _sides(certificate: Location) -> list[str] | None:
    """Returns the replays that a certificate compares.

    They are read from its content, because its name is ambiguous.
    """
    try:
        content = json.loads(certificate.read_text())
        names = {str(content[side]["name"]) for side in ("a", "b")}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return sorted(names - {PUBLISHED})
