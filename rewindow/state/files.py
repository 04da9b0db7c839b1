"""States in files: Parquet, a file or more for each bucket of the key, beside the table of
checkpoints that names them.

The files of the checkpoints in table `T` lie in the folder `T.state`, which belongs to no Delta
table, so that a VACUUM takes none of them. A checkpoint names its files by their paths in that
folder. What no checkpoint names is a stray.
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
"""The field of an operator that a state belongs to; an operator on frames has this one."""
DELETED = "_rw_gone"
"""Column of an increment: whether its key is no longer in the state."""


@dataclass(frozen=True)
class StateFile:
    """A file of a state.

    Attributes:
        path: in the folder of states.
        bucket: of the keys that it holds.
        rows, bytes: how many it holds, and its size.
        hashes: sum of its rows' hashes, in hexadecimal.
        step: 0 for the base, higher for what changed since.
    """

    path: str
    bucket: int
    rows: int
    bytes: int
    hashes: str
    step: int = 0


@dataclass(frozen=True)
class StateFiles:
    """A state that lies in files.

    Attributes:
        folder: where the paths begin.
        schema: columns of the state.
        rows, hashes: of the state as a whole: how many, and the sum of their hashes.
        key: columns of its key; none where the whole row is the key.
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
        """The state's digest: the same in a cell, in other buckets, and with or without
        increments.
        """
        return digest_text(self.schema, self.rows, self.hashes)

    @property
    def steps(self) -> int:
        """How often it has changed since its base was written."""
        return max((file.step for file in self.files), default=0)

    @property
    def leaves(self) -> set[str]:
        """The folders of its files."""
        return {os.path.dirname(file.path) for file in self.files}

    def paths(self, step: int) -> list[str]:
        """Returns the files of its base (0) or of an increment."""
        return [str(self.folder / file.path) for file in self.files if file.step == step]

    def all_paths(self) -> list[Location]:
        """Returns all its files."""
        return [self.folder / file.path for file in self.files]

    def bytes(self, step: int | None = None) -> int:
        """Returns the size of a step, or of all."""
        return sum(file.bytes for file in self.files if step in (None, file.step))

    def to_json(self) -> str:
        """Returns what a checkpoint's row keeps of it beside rows, digest and schema."""
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
        """Returns what `to_json` kept."""
        kept = json.loads(text)
        files = tuple(starmap(StateFile, kept["files"]))
        return cls(
            folder,
            schema,
            rows,
            int(kept["hashes"], 16),
            tuple(kept["key"]),
            kept["buckets"],
            files,
        )

    def check(self) -> None:
        """Reads every file, a batch at a time, and holds it against what was noted of it.

        Raises:
            CheckpointError: a bucket is damaged or gone.
            ResourceError: the machine could not read a file that may be whole.
        """
        for file in self.files:
            names = [*self.schema.names, *([DELETED] if file.step else [])]
            _check(self.folder / file.path, file, names)

    def copied_to(self, folder: Location, place: str) -> StateFiles:
        """Links its files into a place in another folder, copies them where that cannot be; may be
        repeated.
        """
        for file in self.files:
            _link(self.folder / file.path, folder / place / file.path)
        return replace(
            self,
            folder=folder,
            files=tuple(replace(file, path=f"{place}/{file.path}") for file in self.files),
        )


OperatorState: TypeAlias = pa.Table | StateFiles
"""A state between two groups: in memory while it is small, else in files."""
States: TypeAlias = Mapping[str, OperatorState]


def size_text(state: OperatorState) -> str:
    """Returns the size of a state for people."""
    if isinstance(state, StateFiles):
        return f"{state.rows:,} rows, {state.bytes() / 1e6:.1f} MB"
    return f"{state.num_rows:,} rows, {state.nbytes / 1e6:.1f} MB"


"""Operator name to its state."""


def folder_of(table: Location) -> Location:
    """Returns the folder of the states that the checkpoints in a table name."""
    return table.with_name(f"{table.name}.state")


def write_state(
    rows: pa.Table,
    inline_bytes: int,
    folder: Location,
    place: str,
    key: tuple[str, ...],
    buckets: int,
) -> OperatorState:
    """Returns a state that is in memory as it is while it is small, else written into files of a
    folder.
    """
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
    """Writes a state that is in memory into files, as Spark would."""
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
        raise CheckpointError(f"{name} is gone")
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
        gone = f'file "{source.name}" of a state is gone'
        raise CheckpointError(gone, detail=f"Looked in {source.parent}.") from error


@dataclass
class RetainedFiles:
    """The folder of the states of one replay, as an attempt of it keeps it clear of strays.

    Attributes:
        saved: the folders of files that a checkpoint names.
    """

    folder: Location
    epoch: int
    saved: set[str] = field(default_factory=set)

    def clear(self, named: Iterable[str]) -> None:
        """Deletes what attempts that have ended left without a checkpoint; those that are to come
        are left alone.
        """
        self.saved |= set(named)
        for leaf in self._leaves():
            if leaf not in self.saved and int(leaf.partition("-")[0]) < self.epoch:
                (self.folder / leaf).delete_tree()

    def went_on(self, before: States, after: States, *, saved: bool) -> None:
        """Deletes the states before a group that no checkpoint names, now that the states after it
        are there.
        """
        if saved:
            self.saved |= _leaves_of(after)
        for leaf in _leaves_of(before) - _leaves_of(after) - self.saved:
            (self.folder / leaf).delete_tree()

    def _leaves(self) -> Iterator[str]:
        """Returns the folders that attempts wrote: `<epoch>-<window>/<operator>/<field>`."""
        for group in self.folder.folders("*-*"):
            if group.name.partition("-")[0].isdigit():
                for operator in group.folders():
                    for leaf in operator.folders():
                        yield leaf.relative_to(self.folder)


def leaves_in(folder: Location) -> Iterator[str]:
    """Returns the folders below a folder of states that hold files."""
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
    """Returns about how much the files take once they are read, from their footers."""
    found = 0
    for path in files.all_paths():
        footer = pq.read_metadata(path.uri)
        for number in range(footer.num_row_groups):
            found += footer.row_group(number).total_byte_size
    return found


def read_rows(state: OperatorState) -> pa.Table:
    """Returns the rows of a state that is small; rows of a later step replace all of their key."""
    if isinstance(state, pa.Table):
        return state
    # From the newest step back to the base: a key that a later step has is replaced whole, whether
    # it changed there or was removed.
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
    is_newest = [one not in replaced for one in keys]
    return rows.filter(pa.array(is_newest, pa.bool_())), keys


def _read(path: str, schema: pa.Schema) -> pa.Table:
    return pq.read_table(path, partitioning=None).select(schema.names).cast(schema)
