"""Names a replay after the DAG run that it belongs to, so that a retry or a clear finds it again."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rewindow.ledger import Ledger, Replay


_LENGTH_MAX = 40
"""Letters of a DAG's or a stream's name in an id, which must stay short enough for a file's name."""


def replay_id_of(dag_id: str, run_id: str, part: str = "") -> str:
    """Returns the id of a DAG run's first replay: the same one for every try, another one for every run.

    Args:
        dag_id: id of the DAG, which the name begins with.
        run_id: id of its run; the day in it, if any, becomes part of the name.
        part: tells replays of one run apart, such as the stream.

    >>> replay_id_of("replay_daily", "scheduled__2013-01-05T00:00:00+00:00")
    'replay_daily-2013-01-05-eab92e'
    """
    digest = hashlib.sha256(f"{dag_id}\n{run_id}\n{part}".encode()).hexdigest()
    day = re.search(r"\d{4}-\d{2}-\d{2}", run_id)
    parts = [
        re.sub(r"[^A-Za-z0-9_]", "_", dag_id)[:_LENGTH_MAX],
        re.sub(r"[^A-Za-z0-9_]", "_", part)[:_LENGTH_MAX],
        day[0] if day else "",
        digest[:6],
    ]
    return "-".join(part for part in parts if part)


def newest_of(ledger: Ledger, first_id: str) -> tuple[str, Replay | None]:
    """Returns the id of a DAG run's newest replay, and the replay unless it is still to be planned.

    A closed one (published, undone, abandoned) is never computed again: the run's next one is `<first_id>-2`, then -3.
    """
    from rewindow.launcher.attempts import CLOSED_STATES

    replay_id, number = first_id, 1
    while (known := ledger.replays.find(replay_id)) is not None and known.state in CLOSED_STATES:
        number += 1
        replay_id = f"{first_id}-{number}"
    return replay_id, known
