"""Client of Airflow's API: logs in, triggers `replay_windows`, reads the state of its tasks,
approves.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from rewindow.embedded import Running
from rewindow.embedded.api import call, login
from rewindow.errors import ResourceError, RewindowError
from rewindow.json_files import reading_json

DAG = "replay_windows"
USER = "admin"
ENDED = ("success", "failed")


@dataclass(frozen=True)
class Task:
    """A task of a run.

    It has its state (empty before it is scheduled), the number of the try, and the index of a
    mapped instance (-1 for any other task).
    """

    state: str
    tries: int
    map_index: int = -1


class Airflow:
    """A client of Airflow's API with a login. The token is renewed when it has expired."""

    def __init__(self, running: Running) -> None:
        self.address = running.address
        self._passwords = running.password_file
        self._token = ""

    def trigger(self, run_id: str, form: Mapping[str, Any], note: str) -> str:
        """Triggers a run of `replay_windows` with a filled-in form and returns its id.

        If the run already exists, it is not triggered again.
        """
        body = {"dag_run_id": run_id, "logical_date": None, "conf": dict(form), "note": note}
        return str(self._ask("POST", f"/dags/{DAG}/dagRuns", body, missing=body)["dag_run_id"])

    def state(self, run_id: str) -> str:
        """Returns the state of a run."""
        return str(self._ask("GET", self._run(run_id))["state"])

    def tasks(self, run_id: str) -> dict[str, Task]:
        """Returns the tasks of a run by id.

        For a mapped task, returns the instance with the largest index, which is the last one.
        """
        found = self._ask("GET", f"{self._run(run_id)}/taskInstances")["task_instances"]
        tasks = {}
        for one in sorted(found, key=lambda one: one["map_index"]):
            tasks[one["task_id"]] = Task(one["state"] or "", one["try_number"], one["map_index"])
        return tasks

    def replay_id(self, run_id: str) -> str:
        """Returns the replay that a run has planned; empty before the run has planned one."""
        path = f"{self._run(run_id)}/taskInstances/plan_replay/xcomEntries/replay_id"
        return str(self._ask("GET", path, missing={}).get("value") or "")

    def approve(self, run_id: str) -> None:
        """Approves the publication of a run, as a user would on its page."""
        path = f"{self._run(run_id)}/taskInstances/approve_publication/-1/hitlDetails"
        self._ask("PATCH", path, {"chosen_options": ["Approve"], "params_input": {}})

    def stop(self, run_id: str) -> None:
        """Ends a run. Airflow then ends its tasks and their jobs."""
        self._ask(
            "PATCH",
            f"{self._run(run_id)}?update_mask=state",
            {"state": "failed"},
            missing={},
        )

    def last_words(self, run_id: str, task: str, now: Task) -> str:
        """Returns the last lines of a task's log, for an error."""
        query = f"full_content=true&map_index={now.map_index}"
        path = f"{self._run(run_id)}/taskInstances/{task}/logs/{max(now.tries, 1)}?{query}"
        answer = self._ask("GET", path, missing={})
        content = answer.get("content") or []
        lines = [
            str(line.get("event", "")) if isinstance(line, dict) else str(line) for line in content
        ]
        return " / ".join(line.strip() for line in lines[-4:] if line.strip())

    def page(self, run_id: str) -> str:
        """Returns the address of a run's page."""
        return f"{self.address}/dags/{DAG}/runs/{quote(run_id, safe='')}"

    def _run(self, run_id: str) -> str:
        return f"/dags/{DAG}/dagRuns/{quote(run_id, safe='')}"

    def _ask(self, method: str, path: str, body: object = None, *, missing: Any = None) -> Any:
        """Returns an answer of the API.

        If the requested object does not exist (404, 409) and `missing` is given, returns `missing`.

        Raises:
            ResourceError: Airflow does not respond.
            RewindowError: Airflow rejects the request.
        """
        for fresh in (False, True):
            if fresh or not self._token:
                with reading_json(
                    self._passwords,
                    "file of passwords",
                    "Delete it, then: rewindow down, rewindow up.",
                ):
                    password = json.loads(self._passwords.read_text())[USER]
                self._token = login(self.address, USER, password)
            status, answer = call(
                self.address,
                f"/api/v2{path}",
                body=body,
                token=self._token,
                method=method,
                seconds_max=30,
            )
            if status not in (0, 401):
                break
        if 200 <= status < 300:
            return answer
        if missing is not None and status in (404, 409):
            return missing
        if status == 0:
            raise ResourceError(
                f"Airflow at {self.address} does not answer",
                hint="Start Airflow again: rewindow up",
            )
        said = answer.get("detail", answer) if isinstance(answer, dict) else answer
        raise RewindowError(
            f"Airflow rejected {method} {path} with status {status}",
            detail=str(said),
        )
