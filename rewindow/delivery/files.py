"""Targets of the formats `csv` and `parquet`: a folder with one file per window."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from rewindow.delivery.progress_file import ProgressFile
from rewindow.delivery.target import Target

PROGRESS = "_delivered.jsonl"


class FileTarget(Target):
    """Writes `window_id=N.parquet` or `.csv` into a folder per output.

    A file is written under a temporary name and renamed, so readers see the old rows of a window or
    the new ones. The digest is stored after that: if the process dies in between, the next run
    writes the same file again.
    """

    def __init__(self, folder: Path, suffix: str) -> None:
        super().__init__()
        self._folder = folder
        self._suffix = suffix
        self._progress = ProgressFile(folder / PROGRESS, str(folder))
        self._columns = pa.schema([])

    def open(self, stream: str, columns: pa.Schema) -> None:
        """See Target."""
        self._folder = self._folder / stream
        self._progress = ProgressFile(self._folder / PROGRESS, f"the folder {self._folder}")
        self._progress.open()
        self._columns = columns
        for left in self._folder.glob(".window_id=*.tmp"):
            left.unlink()

    def delivered(self) -> Mapping[int, str]:
        """See Target."""
        found = {}
        for window, digest in self._progress.digests.items():
            # A deleted file is written again.
            if self._file(window).exists():
                found[window] = digest
        return found

    def write(
        self,
        window_id: int,
        publication: int,
        digest: str | None,
        batches: Iterable[pa.RecordBatch],
    ) -> None:
        """See Target."""
        file = self._file(window_id)
        if digest is None:
            file.unlink(missing_ok=True)
        else:
            new = self._folder / f".{file.name}.tmp"
            with new.open("wb") as stream:
                self._write_rows(stream, batches)
                stream.flush()
                os.fsync(stream.fileno())
            # Within a folder a rename is atomic: readers open the old file or the new one.
            new.rename(file)
        self._sync_folder()
        # The entry is written after the file. If the process dies in between, the next run
        # replaces the file by one with the same rows.
        self._progress.note(
            window_id,
            publication,
            digest,
        )

    def close(self) -> None:
        """See Target."""
        self._progress.close()

    def _file(self, window_id: int) -> Path:
        return self._folder / f"window_id={window_id}.{self._suffix}"

    def _write_rows(self, stream: Any, batches: Iterable[pa.RecordBatch]) -> None:
        if self._suffix == "csv":
            from pyarrow import csv

            from rewindow.delivery.csv_rows import as_csv

            columns = as_csv(self._columns.empty_table()).schema
            with csv.CSVWriter(stream, columns) as writer:
                for batch in batches:
                    writer.write_table(as_csv(pa.Table.from_batches([batch])))
        else:
            import pyarrow.parquet as pq

            with pq.ParquetWriter(stream, self._columns) as parquet:
                for batch in batches:
                    parquet.write_batch(batch)

    def _sync_folder(self) -> None:
        opened = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
