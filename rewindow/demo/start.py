"""Checks the requirements of the demo, and starts its Airflow."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from rewindow.demo import event_time
from rewindow.embedded import PORT_DEFAULT, Running, down, running, up
from rewindow.errors import InputError, ResourceError
from rewindow.ledger import Ledger
from rewindow.sequences import names_of
from rewindow.settings.config import HEARTBEAT, Config

logger = logging.getLogger(__name__)

PORTS_TRIED = 10
DISK_BYTES_MIN = 2_000_000_000
_OURS = ("airflow", "outcomes", "replays", "results", "streams", "tmp")


def check_place(config: Config, application: str, streams: Iterable[str]) -> None:
    """Checks that the folder contains the example and that the disk has free space.

    Raises:
        InputError: DAGs, application or streams of the example do not exist, or drills are not
            allowed.
        ResourceError: the disk has too little free space.
    """
    for stream in streams:
        config.stream(stream)
    dag = config.root / "dags" / "replay_windows.py"
    sources = [folder / f"{application}.py" for folder in config.applications]
    if not dag.is_file() or not any(path.is_file() for path in sources):
        raise InputError(
            f'the example of the demo is not in "{config.root}"',
            detail=f"Missing: {sources[0] if dag.is_file() else dag}.",
            hint="Run the demo in a clone of the project.",
        )
    if not config.replay.drills:
        raise InputError(
            "the demo kills its jobs, but drills are not enabled in this project",
            hint="Set [replay] drills = true in rewindow.toml, or REWINDOW_REPLAY__DRILLS=true.",
        )
    config.state.make_folder()
    free = config.state.free_bytes()
    if free is not None and free < DISK_BYTES_MIN:
        raise ResourceError(
            f"{free / 1e9:.1f} GB are free for the state folder, but the demo needs up to "
            f"{DISK_BYTES_MIN / 1e9:.0f}",
            hint=f"Free disk space in {config.state}.",
        )


def start_airflow(config: Config, port: int | None) -> Running:
    """Starts Airflow unless it is running.

    If the usual port is in use and no port was requested, the next free port is used.

    Raises:
        ResourceError: it does not start.
    """
    if running(config) is not None or port is not None:
        return up(config, port=port)
    for candidate in range(PORT_DEFAULT, PORT_DEFAULT + PORTS_TRIED):
        if _is_free(candidate):
            return up(config, port=candidate)
        logger.info(f"port {candidate} is in use")
    return up(config)


def begin_afresh(
    config: Config,
    streams: Iterable[str],
    application: str,
) -> None:
    """Deletes everything that earlier demos have left: streams, replays, results, ledger, Airflow's
    database.

    Raises:
        InputError: the state folder contains other streams or applications than those of the
            example.
    """
    ours = {application, *event_time.APPLICATIONS, *(f"{HEARTBEAT}{stream}" for stream in streams)}
    known = {*streams, "quarantine"} | ours
    found = names_of((config.state / "streams").entries())
    foreign = [name for name in found if name.split(".")[0] not in known]
    if foreign:
        raise InputError(
            f'stream "{foreign[0]}" in "{config.state}" is not the example\'s: --fresh would '
            "delete it",
            hint="Run without --fresh, or with another state folder (REWINDOW_STATE).",
        )
    other = next(
        (
            row
            for row in Ledger.open(config.ledger_url).replays.newest(limit=1_000_000)
            if row.application not in ours
        ),
        None,
    )
    if other:
        raise InputError(
            f'replay "{other.replay_id}" of application "{other.application}" is not the '
            "example's: --fresh would "
            "delete it",
            hint="Run without --fresh, or with another state folder (REWINDOW_STATE).",
        )
    logger.info(f"deleting the results of earlier demos in {config.state}")
    down(config)
    for path in (*(config.state / name for name in _OURS), *config.state.entries("ledger*")):
        if path.is_file():
            path.delete()
        else:
            path.delete_tree()


def _is_free(port: int) -> bool:
    from rewindow.embedded.control import refuse_port_in_use

    try:
        refuse_port_in_use(port)
    except ResourceError:
        return False
    return True
