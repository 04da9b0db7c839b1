"""The interface of sources from which streams are recorded, and the lookup of a stream's source.

To add a source, write a module in this folder with a class that implements `Source`, decorated with
`@source("FORMAT")`. All modules of this folder are imported. An example for text files:

    @source("lines")
    class Lines(FileSource):
        suffixes = frozenset({".log"})

        def scan(self, position, declared, recorded):
            contents = self.contents(position)     # the files that have not been read yet
            return replace(contents, columns=["line"], schema=pa.schema([("line", pa.string())]))

        def rows(self, contents, part):
            with part.open() as stream:
                lines = stream.read().decode().splitlines()
            rows = pa.table({"line": pa.array(lines, pa.string())})
            yield with_numbers(rows, pa.array(range(1, len(lines) + 1), pa.int64()))

For rows that cannot be parsed, yield the result of `readers.unreadable_rows`, with number, reason
and text. They go to quarantine, and the others are recorded. In text columns, `rows` must replace
the texts in `contents.nulls` by null. With `lines = "each a row"`, reading a file that has grown
resumes at its old end. Then `rows` must open it with `part.open_at_begin()` and count from
`part.begin_row`.

A source of a format with typed columns uses `choose_columns` and the functions of `typed_rows`; see
`feather_files`. For a complete source with tests, see tests/recording/test_own_source.py.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, ClassVar, Protocol, TypeVar

import pyarrow as pa

from rewindow.errors import InputError, ResourceError
from rewindow.location import Location
from rewindow.recording import sources
from rewindow.sequences import names_of
from rewindow.settings.config import StreamConfig
from rewindow.storage.delta import total_size

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILE = "__file"
ROW = "__row"
BAD = "__bad"
RAW = "__raw"
"""Additional columns of a source's rows: index of the part, row number, reason why the row is
unreadable, text of the row.
"""

PACKAGE = "package:"
ERRORS = "errors:"
"""Prefixes of a source that is not a path: a file of a Python package; a published error port."""
PER_SOURCE = (
    "delimiter",
    "decimal",
    "header",
    "encoding",
    "null_values",
    "new_columns",
    "changed_rows",
    "source_settings",
)
"""Settings of a stream that only some sources use."""


@dataclass(frozen=True)
class SourceFile:
    """A part of a source that is read sequentially, such as a file or a member of a zip file.

    Attributes:
        name: its name in positions, such as "flights.csv.zip/flights.csv".
        path: the file that contains it.
        open: opens its bytes; those of a compressed file are not seekable.
        size: bytes of the file, or of the member of a zip file.
        constants: columns that the file does not contain (a Delta table's partition values).
        modified_ns: time of the last change to the file.
        lines: whether each row is a line of its bytes, so that reading can start at any line.
        quotes: whether an open quote continues in the next line.
        begin_byte, begin_row: position at which reading starts, and the number of the row there.
        seen_rows: an earlier run has read the rows up to this number; only those of them that
            waited then are recorded now.
    """

    name: str
    path: Path
    open: Callable[[], IO[bytes]]
    size: int
    constants: Mapping[str, str | None] = field(default_factory=dict)
    modified_ns: int = 0
    lines: bool = False
    quotes: bool = False
    begin_byte: int = 0
    begin_row: int = 1
    seen_rows: int = 0

    @property
    def in_zip(self) -> bool:
        """Whether the file is a member of a zip file."""
        return self.path.suffix.lower() == ".zip"

    def open_at_begin(self) -> IO[bytes]:
        """Opens the file at the position `begin_byte`."""
        stream = self.open()
        if self.begin_byte:
            stream.seek(self.begin_byte)
        return stream


@dataclass(frozen=True)
class TakenFile:
    """The state of a file when it was read.

    Attributes:
        name, size, modified_ns: as they were then.
        checksum: checksum of its bytes; empty if it changed while it was read.
        waits: whether it has tuples of windows that were not sealed yet.
        rows: number of its last row.
        begin_byte, begin_row: position at which reading resumes: the first row that waits,
            otherwise the end; 0 and 1 if the whole file must be read again.
    """

    name: str
    size: int
    modified_ns: int
    checksum: str
    waits: bool = False
    rows: int = 0
    begin_byte: int = 0
    begin_row: int = 1


@dataclass(frozen=True)
class SourcePosition:
    """The position up to which a source has been read.

    It is stored with the stream.

    Attributes:
        version: the source's version that was read, -1 before the first run.
        sealed_last: last window that was sealed at that time. In parts read then, tuples of later
            windows are still to be recorded.
        waiting: parts read then that have tuples of later windows, with the columns that the part
            does not contain.
        files: files read then, by name; empty for a source with versions.
        settings: digest of the settings that determine the tuples of these files; empty if a run
            died, so that all files are read again.
        gone: files that are missing from the source, only the newest ones.
    """

    version: int = -1
    sealed_last: int | None = None
    waiting: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    files: Mapping[str, TakenFile] = field(default_factory=dict)
    settings: str = ""
    gone: Mapping[str, TakenFile] = field(default_factory=dict)

    def to_text(self) -> str:
        """Returns the position as JSON."""
        values: dict[str, object] = {"version": self.version, "sealed_last": self.sealed_last}
        values["waiting"] = dict(self.waiting)
        if self.files:
            values |= {
                "files": list(map(asdict, self.files.values())),
                "settings": self.settings,
                "gone": list(map(asdict, self.gone.values())),
            }
        return json.dumps(values)

    @classmethod
    def from_text(cls, text: str | None) -> SourcePosition:
        """Returns the position from the text that `to_text` wrote.

        Without a text, returns the position before the first run.
        """
        if not text:
            return cls()
        values = json.loads(text)
        files, gone = (
            {value["name"]: TakenFile(**value) for value in values.get(key, ())}
            for key in ("files", "gone")
        )
        return cls(
            values["version"],
            values["sealed_last"],
            values["waiting"],
            files,
            values.get("settings", ""),
            gone,
        )


@dataclass(frozen=True)
class SourceContents:
    """The parts and columns of a source to read now, without its rows.

    Attributes:
        files: its parts in order; a row's `__file` is an index into them.
        columns: the columns to read.
        schema: pyarrow types of these columns in the rows, as Spark reads them
            (`typed_rows.schema_for_spark`). Without columns, each row is a line of JSON in `__raw`.
        version: the version of a source that has versions, where the next run resumes; otherwise
            None.
        warnings: texts about parts of the source that are not recorded.
        optional: columns that are null in a part that lacks them.
        whole: whether all of the source is read, so that a tuple that is absent counts as missing.
        nulls: texts that mean null.
        present: all existing files, if the source stores which files were read.
        complete_to_us: time up to which the source will have no more tuples, if it knows that;
            windows that end by then are sealed unless the user requests another limit.
        is_computed: whether Python code in Spark's executors computes the rows; they are then
            computed once, into scratch files.
        ends: whether nothing follows these parts, so that the stream has ended.
        notes: per part, the number of values that reading has changed or chosen, by name in
            `NOTES`.
    """

    files: list[SourceFile]
    columns: list[str] = field(default_factory=list)
    schema: pa.Schema = field(default_factory=lambda: pa.schema([]))
    version: int | None = None
    warnings: Sequence[str] = ()
    optional: frozenset[str] = frozenset()
    whole: bool = True
    nulls: Sequence[str] = ()
    present: Sequence[SourceFile] = ()
    complete_to_us: int | None = None
    is_computed: bool = False
    ends: bool = False
    notes: list[Counter[str]] = field(default_factory=list)

    @property
    def size(self) -> int:
        """The total size of the source's parts in bytes."""
        return total_size(self.files)

    def new_notes(self) -> Counter[str]:
        """Returns a new counter for `notes`.

        Each part has a separate counter, because threads do not share counters.
        """
        self.notes.append(Counter())
        return self.notes[-1]

    def check_unchanged(self, stream: str) -> None:
        """Checks that no file was changed while it was read.

        The rows of such a file would be undefined.

        Raises:
            ResourceError: names the file.
        """
        for file in self.files:
            if file.modified_ns and not (
                file.path.is_file() and file.path.stat().st_mtime_ns == file.modified_ns
            ):
                raise ResourceError(
                    f'source file "{file.name}" of stream "{stream}" changed while it was read',
                    detail="This run recorded no tuples.",
                    hint="Run the command again when the file is complete.",
                )


class Source(Protocol):
    """The source of one stream, created for one recording."""

    suffixes: ClassVar[frozenset[str]]
    """Suffixes of file names that identify this format."""
    settings: ClassVar[frozenset[str]]
    """Settings in `PER_SOURCE` that it supports; any other of these is an error."""
    ordered_by_content: ClassVar[bool]
    """Whether tuples with the same arrival are ordered by their content, because their position in
    the source can change. By default they are ordered by position."""

    def __init__(self, name: str, stream: StreamConfig, place: str) -> None:
        """Creates the source from a stream's name, its settings, and its `source`, which is an
        absolute path or "package:...".
        """

    @classmethod
    def is_at(cls, path: Path) -> bool:
        """Returns whether the content of a path, independent of its name, is a source of this
        kind.
        """

    def check(self) -> None:
        """Checks the settings for this source.

        Raises:
            InputError: names the setting and its value.
        """

    def scan(
        self,
        position: SourcePosition,
        declared: Sequence[str] | None,
        recorded: pa.Schema | None,
    ) -> SourceContents:
        """Returns the parts and columns to read, without rows.

        Args:
            position: the position up to which the source has been read.
            declared: names of the columns in the settings; None if they name none.
            recorded: columns of the recorded stream; None before its first recording.

        Raises:
            InputError: the source does not exist, cannot be read, or lacks a declared column.
        """

    def rows(self, contents: SourceContents, part: SourceFile) -> Iterator[pa.Table]:
        """Yields the rows of a part in order, as tables with `__row`, `__bad`, `__raw` and its
        columns.

        `__row` counts up from the part's `begin_row`. `__bad` and `__raw` are null in a valid row
        (`with_numbers`). The columns have the types of `contents.schema`.

        Raises:
            InputError: the part cannot be read.
        """

    def frame(self, spark: SparkSession, contents: SourceContents) -> DataFrame | None:
        """Returns the rows of all parts if Spark can read them directly; None if they must be
        copied with `rows`.

        Shape: `__file, __row, __bad, __raw` and the columns. `__row` is the row's number in its
        file, the same in every run. Spark provides it for Parquet only.
        """


_Kind = TypeVar("_Kind", bound=type[Source])
_KINDS: dict[str, type[Source]] = {}


def source(kind: str) -> Callable[[_Kind], _Kind]:
    """Returns a decorator that registers a class as the source of a format."""

    def register(cls: _Kind) -> _Kind:
        _KINDS[kind] = cls
        return cls

    return register


def known_sources() -> Mapping[str, type[Source]]:
    """Returns all sources by format, sorted by name."""
    for module in pkgutil.iter_modules(sources.__path__, f"{sources.__name__}."):
        importlib.import_module(module.name)
    return dict(sorted(_KINDS.items()))


def open_source(
    name: str,
    stream: StreamConfig,
    root: Path,
    streams: Location | None = None,
) -> Source:
    """Checks the settings of a stream's source and returns the source.

    Args:
        root: folder of the project, to which a relative path of a source refers.
        streams: folder of the recorded and published streams, which contains sources of error
            tuples.

    Raises:
        InputError: the format is unknown or cannot be determined, or a setting does not fit it.
    """
    if stream.source.startswith(ERRORS) and streams is not None:
        place = f"{ERRORS}{streams / stream.source.removeprefix(ERRORS)}"
        kind = "errors"
    else:
        place = stream.source if stream.source.startswith(PACKAGE) else str(root / stream.source)
        kind = source_format(name, place, stream.format)
    cls = known_sources()[kind]
    foreign = [
        key for key in PER_SOURCE if key in stream.model_fields_set and key not in cls.settings
    ]
    if foreign:
        own = ", ".join(sorted(cls.settings - {"source_settings"})) or "none"
        raise InputError(
            f'setting "{foreign[0]}" of stream "{name}" does not apply to sources of format {kind}',
            hint=f"Remove the setting. Settings of this format: {own}.",
        )
    found = cls(name, stream, place)
    found.check()
    return found


def source_format(name: str, place: str, given: str | None) -> str:
    """Returns the format of a stream's source, which is set or determined from its name.

    Raises:
        InputError: the format is unknown, or the name does not determine it.
    """
    known = known_sources()
    if given:
        if given.lower() not in known:
            raise InputError(
                f'format "{given}" of stream "{name}" is unknown: use one of {", ".join(known)}'
            )
        return given.lower()
    path = Path(place)
    told = [kind for kind, cls in known.items() if cls.is_at(path)] or _told(path.name)
    if not told and path.is_dir():
        told = _told_by_any(names_of(sorted(path.iterdir())))
    if not told and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            told = _told_by_any(sorted(archive.namelist()))
    if not told:
        raise InputError(
            f'source "{place}" of stream "{name}" {_untold(path)}',
            hint=f"Set the stream's setting format to one of {', '.join(known)}.",
        )
    return told[0]


def is_hidden(name: str) -> bool:
    """Returns whether a file in a folder or zip file is ignored, because a tool has created it.

    Examples are `__MACOSX/._data.csv` and `_SUCCESS`.
    """
    return Path(name).name.startswith((".", "_"))


def _told_by_any(names: Sequence[str]) -> list[str]:
    return list(chain.from_iterable(_told(name) for name in names if not is_hidden(name)))


def _untold(path: Path) -> str:
    """Returns the reason why the format of a path cannot be determined.

    The reason need not be its name.
    """
    if path.is_dir():
        return "contains no file with a known suffix, so its format is unknown"
    if path.exists() or set(path.name) & set("*?["):
        return "has no known suffix, so its format is unknown"
    return "does not exist, and its name has no known suffix"


def _told(name: str) -> list[str]:
    """Returns the formats that match the suffixes of a file's name, the last suffix first."""
    formats: list[str] = []
    for suffix in map(str.lower, reversed(Path(name).suffixes)):
        formats += [kind for kind, cls in _KINDS.items() if suffix in cls.suffixes]
    return formats
