"""States in Parquet files. Each bucket of the key has one or more files, next to the table of
checkpoints that names them.

The state files of the checkpoints in table `T` are in the folder `T.state`, which is not part of a
Delta table, so that a VACUUM does not delete them. A checkpoint stores the paths of its files
relative to that folder. A file that no checkpoint names is left over and may be deleted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import starmap
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rewindow.errors import CheckpointError
from rewindow.location import Location
from rewindow.state.row_hash import buckets_of, digest_text, row_sum
from rewindow.storage.failures import DAMAGE, may_be_whole, plain_text, table_failure

FIELD = "state"
"""The name of the field that a state belongs to, for frame operators, which have only one."""
DELETED = "_rw_gone"
"""Column of an increment: true if the key was removed from the state."""


@dataclass(frozen=True)
class StateFile:
    """One file of a state.

    Attributes:
        path: path in the folder of states.
        bucket: number of the bucket whose keys it contains.
        rows, bytes: its number of rows and its size.
        hashes: sum of its rows' hashes, in hexadecimal.
        step: 0 for the base, n for the n-th increment after it.
    """

    path: str
    bucket: int
    rows: int
    bytes: int
    hashes: str
    step: int = 0


@dataclass(frozen=True)
class StateFiles:
    """A state that is stored in files.

    Attributes:
        folder: the folder that paths are relative to.
        schema: columns of the state.
        rows, hashes: number of rows of the whole state, and the sum of their hashes.
        key: columns of its key; empty if the whole row is the key.
        buckets: number of buckets.
    """

    folder: Location
    schema: pa.Schema
    rows: int
    hashes: int
    key: tuple[str, ...]
    buckets: int
    files: tuple[StateFile, ...]

    @property
    def digest(self) -> str:
        """The digest of the state.

        It does not depend on whether the state is in a cell or in files, on the buckets, or on
        increments.
        """
        return digest_text(self.schema, self.rows, self.hashes)

    @property
    def steps(self) -> int:
        """The number of increments since the base was written."""
        return max((file.step for file in self.files), default=0)

    @property
    def leaves(self) -> set[str]:
        """The folders of the state's files."""
        return {os.path.dirname(file.path) for file in self.files}

    def paths(self, step: int) -> list[str]:
        """Returns the paths of the files of the base (0) or of an increment."""
        return [str(self.folder / file.path) for file in self.files if file.step == step]

    def all_paths(self) -> list[Location]:
        """Returns the paths of all files of the state."""
        return [self.folder / file.path for file in self.files]

    def bytes(self, step: int | None = None) -> int:
        """Returns the size of one step or of all steps."""
        return sum(file.bytes for file in self.files if step in (None, file.step))

    def to_json(self) -> str:
        """Returns the attributes that a checkpoint's row stores in addition to rows, digest and
        schema.
        """
        files = [list(asdict(file).values()) for file in self.files]
        return json.dumps(
            {
                "hashes": f"{self.hashes:016x}",
                "key": self.key,
                "buckets": self.buckets,
                "files": files,
            }
        )

    @classmethod
    def from_json(
        cls,
        text: str,
        folder: Location,
        schema: pa.Schema,
        rows: int,
    ) -> StateFiles:
        """Returns the state that `to_json` has serialized."""
        values = json.loads(text)
        files = tuple(starmap(StateFile, values["files"]))
        return cls(
            folder,
            schema,
            rows,
            int(values["hashes"], 16),
            tuple(values["key"]),
            values["buckets"],
            files,
        )

    def check(self) -> None:
        """Reads every file in batches, and compares it with its recorded size and hashes.

        Raises:
            CheckpointError: a file is damaged or missing.
            ResourceError: a file could not be read, but may be intact.
        """
        for file in self.files:
            names = [*self.schema.names, *([DELETED] if file.step else [])]
            _check(self.folder / file.path, file, names)

    def copied_to(self, folder: Location, place: str) -> StateFiles:
        """Links the state's files into another folder, or copies them if linking is not possible.
        Returns the state there.

        Can be repeated.
        """
        for file in self.files:
            _link(self.folder / file.path, folder / place / file.path)
        return replace(
            self,
            folder=folder,
            files=tuple(replace(file, path=f"{place}/{file.path}") for file in self.files),
        )


OperatorState: TypeAlias = pa.Table | StateFiles
"""A state between two groups: in memory if small, otherwise in files."""
States: TypeAlias = Mapping[str, OperatorState]
"""Operator name to its state."""


def size_text(state: OperatorState) -> str:
    """Returns the size of a state as text for a user."""
    if isinstance(state, StateFiles):
        return f"{state.rows:,} rows, {state.bytes() / 1e6:.1f} MB"
    return f"{state.num_rows:,} rows, {state.nbytes / 1e6:.1f} MB"


def folder_of(table: Location) -> Location:
    """Returns the folder with the state files of a table of checkpoints."""
    return table.with_name(f"{table.name}.state")


def write_state(
    rows: pa.Table,
    inline_bytes: int,
    folder: Location,
    place: str,
    key: tuple[str, ...],
    buckets: int,
) -> OperatorState:
    """Returns a small state unchanged, and writes a larger one to files in a folder."""
    if not rows.num_rows or rows.nbytes <= inline_bytes:
        return rows
    return write_rows(rows, folder, place, key, buckets)


def write_rows(
    rows: pa.Table,
    folder: Location,
    place: str,
    key: tuple[str, ...],
    buckets: int,
) -> StateFiles:
    """Writes a state from memory to files, in the same format as Spark does."""
    of_row = buckets_of(rows, key, buckets)
    (folder / place).make_folder()
    files = []
    for bucket in np.unique(of_row).tolist():
        part = rows.filter(pa.array(of_row == bucket))
        path = f"{place}/part-{bucket:05}.parquet"
        pq.write_table(
            part,
            (folder / path).uri,
            coerce_timestamps="us",
            allow_truncated_timestamps=True,
        )
        size = (folder / path).size()
        files.append(
            StateFile(path, bucket, part.num_rows, bytes=size, hashes=f"{row_sum(part):016x}")
        )
    return StateFiles(
        folder,
        rows.schema,
        rows.num_rows,
        hashes=row_sum(rows),
        key=key,
        buckets=buckets,
        files=tuple(files),
    )


def _check(path: Location, file: StateFile, names: list[str]) -> None:
    name = f'bucket {file.bucket} of the state in "{file.path}"'
    if not path.is_file():
        raise CheckpointError(f"{name} is missing")
    if path.size() != file.bytes:
        raise CheckpointError(f"{name} is damaged: it has {path.size()} bytes, not {file.bytes}")
    rows = total = 0
    try:
        with pq.ParquetFile(path.uri) as parquet:
            for batch in parquet.iter_batches():
                rows = rows + batch.num_rows
                total = total + row_sum(batch.select(names))
    except DAMAGE as error:
        if may_be_whole(error):
            raise table_failure(f"{name} cannot be read", error) from error
        raise CheckpointError(f"{name} is damaged", detail=f"{plain_text(error)}.") from error
    if (rows, f"{total % 2**64:016x}") != (file.rows, file.hashes):
        raise CheckpointError(f"{name} is damaged: its digest differs")


def _link(source: Location, target: Location) -> None:
    try:
        source.copy_to(target)
    except FileNotFoundError as error:
        missing = f'file "{source.name}" of a state is missing'
        raise CheckpointError(missing, detail=f"It was expected in {source.parent}.") from error


@dataclass
class RetainedFiles:
    """Deletes files from the state folder of a replay that neither a checkpoint names nor a group
    needs.

    Attributes:
        epoch: epoch of the current attempt.
        saved: the folders of files that a checkpoint names.
    """

    folder: Location
    epoch: int
    saved: set[str] = field(default_factory=set)

    def clear(self, named: Iterable[str]) -> None:
        """Deletes the files of earlier attempts that no checkpoint names.

        Files of later attempts are not deleted.
        """
        self.saved |= set(named)
        for leaf in self._leaves():
            if leaf not in self.saved and int(leaf.partition("-")[0]) < self.epoch:
                (self.folder / leaf).delete_tree()

    def went_on(self, before: States, after: States, *, saved: bool) -> None:
        """Deletes the states before a group, unless a checkpoint names them.

        It is called after the states that follow the group were written.
        """
        if saved:
            self.saved |= _leaves_of(after)
        for leaf in _leaves_of(before) - _leaves_of(after) - self.saved:
            (self.folder / leaf).delete_tree()

    def _leaves(self) -> Iterator[str]:
        """Yields the folders that attempts have written: `<epoch>-<window>/<operator>/<field>`."""
        for group in self.folder.folders("*-*"):
            if group.name.partition("-")[0].isdigit():
                for operator in group.folders():
                    for leaf in operator.folders():
                        yield leaf.relative_to(self.folder)


def leaves_in(folder: Location) -> Iterator[str]:
    """Yields the folders with state files in a folder of states, at any depth."""
    leaves = set()
    for file in folder.files():
        if file.name.endswith(".parquet"):
            leaves.add(file.parent.relative_to(folder))
    yield from sorted(leaves)


def _leaves_of(states: States) -> set[str]:
    leaves: set[str] = set()
    for state in states.values():
        if isinstance(state, StateFiles):
            leaves |= state.leaves
    return leaves


def bytes_in_memory(files: StateFiles) -> int:
    """Returns the approximate size of the files in memory, computed from their footers."""
    total = 0
    for path in files.all_paths():
        footer = pq.read_metadata(path.uri)
        for number in range(footer.num_row_groups):
            total += footer.row_group(number).total_byte_size
    return total


def read_rows(state: OperatorState) -> pa.Table:
    """Returns the rows of a small state.

    Rows of a later step replace all rows with the same key.
    """
    if isinstance(state, pa.Table):
        return state
    # From the newest step back to the base. All rows of a key that occurs in a later step are
    # ignored, whether the key was changed or removed there. So each step is read once, and a set of
    # keys replaces a join over all steps.
    gone: set[tuple[object, ...]] = set()
    kept = [state.schema.empty_table()]
    for step in range(state.steps, -1, -1):
        schema = pa.schema([*state.schema, *([(DELETED, pa.bool_())] if step else [])])
        parts = [_read(path, schema) for path in state.paths(step)]
        rows = pa.concat_tables([schema.empty_table(), *parts])
        if state.steps:
            rows, keys = without_keys(rows, state.key, gone)
            gone.update(keys)
        rows = rows.filter(pc.invert(rows[DELETED])) if step else rows
        kept.append(rows.select(state.schema.names))
    return pa.concat_tables(kept)


def without_keys(
    rows: pa.Table,
    key: tuple[str, ...],
    replaced: Container[tuple[object, ...]],
) -> tuple[pa.Table, list[tuple[object, ...]]]:
    """Returns the rows whose key is not replaced, and the keys of all rows."""
    keys = list(map(tuple, map(dict.values, rows.select(list(key)).to_pylist())))
    is_newest = [key_value not in replaced for key_value in keys]
    return rows.filter(pa.array(is_newest, pa.bool_())), keys


def _read(path: str, schema: pa.Schema) -> pa.Table:
    return pq.read_table(path, partitioning=None).select(schema.names).cast(schema)
