"""A state folder in which a fix is about to be published or undone, copied for every kill; and what
must come of it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rewindow.ledger import Ledger, Publication, publish_app_id
from rewindow.publication.publish import publish
from rewindow.publication.result import PublicationResult
from rewindow.publication.undo import undo
from rewindow.recovery import StartState
from rewindow.settings.config import Config
from rewindow.state import checkpoints as stored
from rewindow.storage import Table, query
from tests.publication.staging import simple
from tests.publication.writers import FIRST as WRITERS_FIRST
from tests.small_frames import small_frames_toml

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROJECT = Path(__file__).parents[2]
TABLES = ("app.ranks", "app.ranks.windows", "app.checkpoints")
_CHANGING = ("data_version", "sealed_at", "checksum")


@dataclass
class Scene:
    """A state folder with replay "r0" of windows 100 to 107 published, "r1" after it, and "fix"
    over r0.

    Attributes:
        take_back: whether "fix" is published already and the act is its undo.
    """

    config: Config
    take_back: bool

    def copy(self, folder: Path) -> Scene:
        shutil.copytree(self.config.state, folder / "state")
        return Scene(settings(folder), self.take_back)

    def act(self, spark: SparkSession | None = None) -> PublicationResult:
        return (undo if self.take_back else publish)(self.config, "fix", spark=spark)

    def start(self, crash: str = "", writer: str = "") -> subprocess.Popen[str]:
        """Starts the job in a process of its own, to be killed at a step, with another writer
        before each commit.
        """
        return start_job(
            self.config,
            "fix",
            *(["--undo"] if self.take_back else []),
            crash=crash,
            writer=writer,
        )

    def kill_at(self, crash: str, writer: str = "") -> None:
        """Runs the job until it kills its own process group at a step."""
        process = self.start(crash, writer)
        output, _ = process.communicate(timeout=280)
        assert process.returncode == -signal.SIGKILL, output

    def contents(self, *but: str) -> dict[str, list[str]]:
        """Returns what the published tables hold, but for times, version numbers and the columns
        `but`.

        Rows of another writer are left out.
        """
        found = {}
        for name in TABLES:
            known = f"select * from t where window_id is null or window_id < {WRITERS_FIRST}"
            rows = query(known, t=Table.open(self.config.stream_table(name)))
            kept = rows.select(
                [column for column in rows.column_names if column not in {*_CHANGING, *but}]
            )
            found[name] = sorted(map(repr, kept.to_pylist()))
        return found

    def rows_of_writer(self) -> list[int]:
        """Returns the windows of the rows that another writer has left, ascending."""
        mine = f"select window_id as w from t where window_id >= {WRITERS_FIRST} order by w"
        return list(query(mine, t=Table.open(self.config.stream_table(TABLES[0])))["w"].to_pylist())

    def numbers(self) -> dict[str, list[int]]:
        """Returns the publication numbers that each table's log has taken, one for each commit."""
        return {
            name: _numbers(self.config.stream_table(name), publish_app_id(name)) for name in TABLES
        }

    def standing(self) -> dict[str, Any]:
        ledger = Ledger.open(self.config.ledger_url)
        return {
            "open": ledger.publications.unfinished(),
            "state": ledger.replays.get("fix").state,
            "leases": ledger.leases.held(),
            "stale": [(row.table_name, row.first, row.last) for row in ledger.stale.ranges("app")],
            "versions": [self._holds(one) for one in ledger.publications.newest(application="app")],
        }

    def _holds(self, publication: Publication) -> bool:
        """Returns whether the versions that the ledger gives for a publication are those that
        brought it.
        """
        return all(
            Table.open(self.config.stream_table(table.name), table.version_after).txn(
                publish_app_id(table.name)
            )
            == publication.number
            for table in publication.tables
        )


def start_job(
    config: Config,
    replay_id: str,
    *flags: str,
    crash: str = "",
    writer: str = "",
) -> subprocess.Popen[str]:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("REWINDOW_")
    }
    environment |= {"REWINDOW_CONFIG": str(config.file), "PYTHONPATH": str(PROJECT)}
    environment |= {"REWINDOW_CRASH": crash} if crash else {}
    before = ["-m", "tests.publication.writers", writer] if writer else []
    command = [
        sys.executable,
        *before,
        str(PROJECT / "jobs" / "publish.py"),
        "--replay",
        replay_id,
        *flags,
    ]
    return subprocess.Popen(
        command,
        env=environment,
        start_new_session=True,
        text=True,
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def settings(folder: Path) -> Config:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "rewindow.toml"
    jars = PROJECT / ".rewindow" / "jars"
    file.write_text(
        f'state = "{folder / "state"}"\n[spark]\njars = "{jars}"\n{small_frames_toml()}'
    )
    return Config.load(file)


def build(folder: Path) -> tuple[Scene, Scene]:
    """Returns the scene before the publication of the fix, and the one before its undo."""
    config = settings(folder / "publish")
    simple(config, "r0", 100, 107, publishable=True, outputs=("ranks",))
    publish(config, "r0")
    rows = stored.rows_at(Table.open(config.checkpoints_table("app")), 107)
    path = config.checkpoints_table("app")
    start = StartState(
        source="published",
        window=107,
        taken_from="streams/app.checkpoints",
        version=Table.open(path).version,
        digest=stored.state_digest(rows),
    )
    state = stored.decode(rows.to_pylist()[0], Path())
    simple(
        config,
        "r1",
        108,
        109,
        publishable=True,
        outputs=("ranks",),
        start=start,
        start_state=state,
    )
    publish(config, "r1")
    simple(config, "fix", 100, 107, plus=7, publishable=True, outputs=("ranks",))
    before = Scene(config, take_back=False)
    published = before.copy(folder / "undo")
    published.act()
    return before, Scene(published.config, take_back=True)


def _numbers(path: Path, app_id: str) -> list[int]:
    found = []
    for file in sorted((path / "_delta_log").glob("*.json")):
        for line in file.read_text().splitlines():
            transaction = json.loads(line).get("txn")
            if transaction and transaction["appId"] == app_id:
                found.append(int(transaction["version"]))
    return found
