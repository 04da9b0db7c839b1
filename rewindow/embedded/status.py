"""The file in which the supervisor reports its status to other processes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rewindow.embedded.processes import is_alive
from rewindow.json_files import reading_json

STARTING = "starting"
READY = "ready"
FAILED = "failed"


@dataclass(frozen=True)
class SupervisorStatus:
    """The last status of the supervisor.

    The pid and the start time identify a process even after its pid is reused.
    """

    pid: int
    started: int | None
    port: int
    state: str
    message: str = ""
    components: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)

    @property
    def alive(self) -> bool:
        """Whether the supervisor that wrote this status is still running."""
        return is_alive(self.pid, self.started)

    def write(self, home: Path) -> None:
        """Replaces the status file atomically."""
        draft = home / "supervisor.json.new"
        draft.write_text(json.dumps(asdict(self), indent=2))
        draft.replace(home / "supervisor.json")


def read_status(home: Path) -> SupervisorStatus | None:
    """Returns the status that the last supervisor of this home wrote; None if there was no
    supervisor.

    Raises:
        RewindowError: the file is damaged.
    """
    path = home / "supervisor.json"
    if not path.is_file():
        return None
    hint = "Delete it once no Airflow of this project runs any more (ps aux | grep airflow)."
    with reading_json(path, "status file of Airflow", hint):
        values = json.loads(path.read_text())
        components = {
            name: (pid, started) for name, (pid, started) in values.pop("components").items()
        }
        return SupervisorStatus(**values, components=components)
