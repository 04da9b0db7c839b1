"""A stream of its own for each test, and ways to look at what was recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rewindow.recording.result import RecordResult
from rewindow.settings.config import Config, StreamConfig
from rewindow.storage import query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = "k STRING, at TIMESTAMP, n INT"
HEADER = "k,at,n\n"
ENDS = "1970-01-01T02:47:30Z"
"""End of window 1004, to which the bench seals by default."""


@dataclass
class Bench:
    """A stream "s" with windows of ten seconds, recorded from a source that the test writes."""

    spark: SparkSession
    root: Path

    def config(self, **settings: Any) -> Config:
        values = {
            "source": str(self.root / "s.csv"),
            "arrived_at": "at",
            "columns": COLUMNS,
            "keys": ["k"],
        }
        stream = StreamConfig(**{**values, "width": "10 s", "sealed_to": ENDS, **settings})
        return Config(state=self.root / "state", streams={"s": stream})

    def write(self, rows: str, name: str = "s.csv") -> None:
        (self.root / name).write_text(HEADER + rows)

    def record(
        self,
        *,
        end: bool = False,
        seal_again: bool = False,
        reopen: bool = False,
        replace: bool = False,
        start_over: bool = False,
        **settings: Any,
    ) -> RecordResult:
        from rewindow.recording.record import record

        flags = {
            "end": end,
            "seal_again": seal_again,
            "reopen": reopen,
            "replace": replace,
            "start_over": start_over,
        }
        return record(self.spark, self.config(**settings), "s", **flags)

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """Returns rows of the stream `s`, its windows `w` and, once something lies in it, the
        quarantine `q`.
        """
        config = self.config()
        tables = {
            "s": config.stream_table("s"),
            "w": config.windows_table("s"),
            "q": config.quarantine_table,
        }
        return query(
            sql,
            **{name: path for name, path in tables.items() if path.exists()},
        ).to_pylist()

    def tuples(self) -> list[tuple[int, int, str, int]]:
        """Returns window, offset, key and number of every recorded tuple, in order."""
        found = self.rows('select window_id, "offset", k, n from s order by window_id, "offset"')
        return [tuple(row.values()) for row in found]  # type: ignore[misc]

    def aside(self) -> list[tuple[Any, ...]]:
        """Returns window, reason and position of everything in quarantine."""
        found = self.rows(
            "select window_id, reason, position from q order by reason, position, window_id"
        )
        return [tuple(row.values()) for row in found]


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path) -> Bench:
    return Bench(spark, tmp_path)


@pytest.fixture
def at() -> Callable[[float], str]:
    """Returns seconds since the beginning of window 1000 as text."""
    return lambda seconds: (
        f"1970-01-01T02:46:{40 + int(seconds):02}.{round(seconds % 1 * 1000):03}Z"
    )
