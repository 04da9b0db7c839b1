"""A project with targets, and a PostgreSQL server."""

from __future__ import annotations

import textwrap
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from rewindow.settings.config import Config
from tests.ledger.conftest import postgresql  # noqa: F401


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "rewindow.toml").write_text(
        textwrap.dedent("""
        state = "state"
        [targets.lake]
        format = "parquet"
        folder = "lake"
        [targets.sheets]
        format = "csv"
        folder = "sheets"
        [targets.warehouse]
        format = "postgresql"
        url_env = "WAREHOUSE_URL"
        table = "delays"
        [targets.hook]
        format = "python"
        source = "hook.py:Hook"
        settings = { place = "hooked.json" }
        [targets.forgetful]
        format = "python"
        source = "hook.py:Forgetful"
        """)
    )
    (tmp_path / "hook.py").write_text(
        textwrap.dedent("""
        import json
        from pathlib import Path
        import pyarrow as pa
        from rewindow.delivery import Target

        class Hook(Target):
            place: str

            def open(self, stream, columns):
                self.file = Path(__file__).with_name(self.place)
                self.stored = json.loads(self.file.read_text()) if self.file.exists() else {}

            def delivered(self):
                return {int(window): digest for window, (digest, rows) in self.stored.items()}

            def write(self, window_id, publication, digest, batches):
                rows = [row for batch in batches for row in batch.to_pylist()]
                self.stored[str(window_id)] = [digest, rows]
                if digest is None:
                    del self.stored[str(window_id)]
                self.file.write_text(json.dumps(self.stored, default=str))

        class Forgetful(Target):
            def write(self, window_id, publication, digest, batches):
                with Path(__file__).with_name("forgetful.txt").open("a") as file:
                    file.write(f"{window_id}\\n")
        """)
    )
    return Config.load(tmp_path / "rewindow.toml")


@pytest.fixture
def warehouse(
    config: Config,
    postgresql: str,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[psycopg.Connection[Any]]:
    """A connection to a new schema of a real server."""
    schema = f"test_{uuid.uuid4().hex[:12]}"
    url = f"{postgresql}&options=-csearch_path%3D{schema}"
    monkeypatch.setenv("WAREHOUSE_URL", url)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"create schema {schema}")
        yield connection
