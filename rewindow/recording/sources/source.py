"""What a stream is recorded from: what every source answers, and how the source of a stream is
found.

To add a source, write a module in this folder with a class that has what `Source` names, under
`@source("FORMAT")`: the modules of this folder are all looked at. Of files of text, whole:

    @source("lines")
    class Lines(FileSource):
        suffixes = frozenset({".log"})

        def scan(self, position, declared, recorded):
            contents = self.contents(position)     # the files that have not been taken yet
            return replace(contents, columns=["line"], schema=pa.schema([("line", pa.string())]))

        def rows(self, contents, part):
            with part.open() as stream:
                lines = stream.read().decode().splitlines()
            rows = pa.table({"line": pa.array(lines, pa.string())})
            yield with_numbers(rows, pa.array(range(1, len(lines) + 1), pa.int64()))

Of rows that cannot be read `unreadable_rows` of `readers` gives number, reason and text: they go to
quarantine, and the rest is recorded. `rows` itself makes nulls of the texts in `contents.nulls`
where a column is text. With `lines = "each a row"` a file that has grown is read on from its old
end: then `rows` opens it by `part.open_at_begin()` and counts from `part.begin_row`.

A format with types of its own is made of `choose_columns` and of what `typed_rows` has:
`feather_files` is one. A source with the tests that belong to it:
tests/recording/test_own_source.py.
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
"""Columns of a source's rows beside its own: part, row number, why a row is unreadable, its
text."""

PACKAGE = "package:"
ERRORS = "errors:"
"""What a source begins with that is no path: a file of a Python package; a published error port."""
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
"""Settings of a stream that mean something to some sources only."""


@dataclass(frozen=True)
class SourceFile:
    """A part of a source: a file, or a member of a zip file; what is read from its beginning to its
    end.

    Attributes:
        name: how positions name it, such as "flights.csv.zip/flights.csv".
        path: the file that holds it.
        open: opens its bytes; those of a compressed file cannot be sought.
        size: bytes of the file, or of the member of a zip file.
        constants: columns that the file itself does not hold (a Delta table's partition values).
        modified_ns: when the file was written last.
        lines: whether a row is a line of its bytes, so that it can be read from the beginning of
            any line.
        quotes: whether a quote that is open goes on in the next line.
        begin_byte, begin_row: where reading begins, and the number of the row there.
        seen_rows: rows up to this number were read by an earlier run; only tuples among them that
            waited then are to be taken now.
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
        """Whether it is a member of a zip file."""
        return self.path.suffix.lower() == ".zip"

    def open_at_begin(self) -> IO[bytes]:
        """Opens its bytes at `begin_byte`."""
        stream = self.open()
        if self.begin_byte:
            stream.seek(self.begin_byte)
        return stream


@dataclass(frozen=True)
class TakenFile:
    """A file that was taken.

    Attributes:
        name, size, modified_ns: as it was then.
        checksum: of its bytes; empty when it changed while it was read.
        waits: whether it holds tuples of windows that were not sealed yet.
        rows: number of its last row.
        begin_byte, begin_row: where reading goes on: the first row that waits, else the end; 0 and
            1 where the whole file must be read again.
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
    """What has been taken of a source already; kept with the stream.

    Attributes:
        version: the source's version that was read, -1 before the first run.
        sealed_last: last window sealed when it was read; what lies behind it in parts read then is
            done.
        waiting: parts read then that hold tuples beyond it, with the columns that they do not hold
            themselves.
        files: files taken then, by name; a source with versions has none.
        settings: a digest of the settings that said which tuples these files have; empty where a
            run died, so that all of them are read again.
        gone: files that are missing from the source, the newest ones.
    """

    version: int = -1
    sealed_last: int | None = None
    waiting: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    files: Mapping[str, TakenFile] = field(default_factory=dict)
    settings: str = ""
    gone: Mapping[str, TakenFile] = field(default_factory=dict)

    def to_text(self) -> str:
        """Returns it as JSON."""
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
        """Returns what `to_text` wrote; without text, the position before the first run."""
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
    """What a source has that is to be read now: its parts and columns, not its rows.

    Attributes:
        files: its parts in order; a row's `__file` is an index into them.
        columns: its columns that are read.
        schema: their pyarrow types, those of the rows, such as Spark reads
            (`typed_rows.schema_for_spark`); without any, each row is a line of JSON in `__raw`.
        version: the version of a source that has versions, which the next run goes on from; else
            None.
        warnings: what is not taken of the source.
        optional: columns that are null in a part that lacks them.
        whole: whether all of the source was read, so that what it lacks is missing from it.
        nulls: texts that mean null.
        present: all files that are there, where those that were taken are remembered.
        complete_to_us: the time up to which nothing more can come, where the source knows it;
            windows that end by then are sealed unless the user says otherwise.
        is_computed: whether Python code on Spark's executors makes the rows; they are then computed
            once, into scratch files.
        ends: whether nothing comes after these parts, so that the stream has ended.
        notes: by one of `NOTES`, how many values reading has changed or chosen, of each part.
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
        """Bytes of the source's parts."""
        return total_size(self.files)

    def new_notes(self) -> Counter[str]:
        """Returns an empty count for `notes`; each part that is read has its own, as threads do not
        share one.
        """
        self.notes.append(Counter())
        return self.notes[-1]

    def check_unchanged(self, stream: str) -> None:
        """Refuses what was read of files that were written meanwhile: nobody knows which of their
        rows it is.

        Raises:
            ResourceError: names the file.
        """
        for file in self.files:
            if file.modified_ns and not (
                file.path.is_file() and file.path.stat().st_mtime_ns == file.modified_ns
            ):
                raise ResourceError(
                    f'source file "{file.name}" of stream "{stream}" changed while it was read',
                    detail="Nothing of this run was recorded.",
                    hint="Run it again when whoever writes the file is done.",
                )


class Source(Protocol):
    """The source of one stream; made for one recording."""

    suffixes: ClassVar[frozenset[str]]
    """Suffixes of file names that tell this format."""
    settings: ClassVar[frozenset[str]]
    """Which of `PER_SOURCE` it knows; a stream that gives it others is refused."""

    def __init__(self, name: str, stream: StreamConfig, place: str) -> None:
        """Takes a stream's name, its settings, and its `source` as an absolute path, or as
        "package:...".
        """

    @classmethod
    def is_at(cls, path: Path) -> bool:
        """Returns whether what is at a path tells that it is a source of this kind, whatever its
        name.
        """

    def check(self) -> None:
        """Refuses settings that this source cannot go by.

        Raises:
            InputError: names the setting and its value.
        """

    def scan(
        self,
        position: SourcePosition,
        declared: Sequence[str] | None,
        recorded: pa.Schema | None,
    ) -> SourceContents:
        """Returns what is to be read, without its rows.

        Args:
            position: what has been taken already.
            declared: names of the columns in the settings, None if there are none.
            recorded: columns of the recorded stream, None before its first recording.

        Raises:
            InputError: the source is not there, cannot be read, or lacks a declared column.
        """

    def rows(self, contents: SourceContents, part: SourceFile) -> Iterator[pa.Table]:
        """Yields the rows of a part in their order, some at a time: `__row`, `__bad`, `__raw` and
        its columns.

        `__row` counts up from the part's `begin_row`; `__bad` and `__raw` are null in a good row
        (`with_numbers`); columns have the types of `contents.schema`.

        Raises:
            InputError: the part cannot be read.
        """

    def frame(self, spark: SparkSession, contents: SourceContents) -> DataFrame | None:
        """Returns the rows of all parts as Spark itself reads them; None where `rows` is asked, and
        they are copied.

        Shape: `__file, __row, __bad, __raw` and the columns. `__row` is the row's number in its
        file, the same in every run: Spark tells it of Parquet, and of no other format.
        """


_Kind = TypeVar("_Kind", bound=type[Source])
_KINDS: dict[str, type[Source]] = {}


def source(kind: str) -> Callable[[_Kind], _Kind]:
    """Returns a decorator that makes a class the source of a format."""

    def register(cls: _Kind) -> _Kind:
        _KINDS[kind] = cls
        return cls

    return register


def known_sources() -> Mapping[str, type[Source]]:
    """Returns all sources by format, in order of their names."""
    for module in pkgutil.iter_modules(sources.__path__, f"{sources.__name__}."):
        importlib.import_module(module.name)
    return dict(sorted(_KINDS.items()))


def open_source(
    name: str,
    stream: StreamConfig,
    root: Path,
    streams: Location | None = None,
) -> Source:
    """Returns the source of a stream, with its settings checked.

    Args:
        root: folder of the project, where a source that is a path begins.
        streams: folder of the recorded and published streams, where the source of error tuples is.

    Raises:
        InputError: the format is unknown or not told, or a setting does not fit it.
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
            f'setting "{foreign[0]}" of stream "{name}" means nothing to a source of format {kind}',
            hint=f"Take it out. Settings of this format: {own}.",
        )
    found = cls(name, stream, place)
    found.check()
    return found


def source_format(name: str, place: str, given: str | None) -> str:
    """Returns the format of a stream's source, as set or told from its name.

    Raises:
        InputError: the format is unknown, or the name does not tell it.
    """
    known = known_sources()
    if given:
        if given.lower() not in known:
            raise InputError(
                f'format "{given}" of stream "{name}" is unknown, known are {", ".join(known)}'
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
            hint=f"Set format to one of {', '.join(known)}.",
        )
    return told[0]


def is_hidden(name: str) -> bool:
    """Returns whether a file of a folder or zip file is passed over: one that a tool left there,
    such as `__MACOSX/._data.csv` or `_SUCCESS`.
    """
    return Path(name).name.startswith((".", "_"))


def _told_by_any(names: Sequence[str]) -> list[str]:
    return list(chain.from_iterable(_told(name) for name in names if not is_hidden(name)))


def _untold(path: Path) -> str:
    """Returns why a path tells no format: something is wrong with it rather than with its name,
    where that is so.
    """
    if path.is_dir():
        return "is a folder without a file that tells its format"
    if path.exists() or set(path.name) & set("*?["):
        return "does not tell its format by its name"
    return "is not there, and its name tells no format"


def _told(name: str) -> list[str]:
    """Returns the formats that the suffixes of a file's name tell, the last one first."""
    formats: list[str] = []
    for suffix in map(str.lower, reversed(Path(name).suffixes)):
        formats += [kind for kind, cls in _KINDS.items() if suffix in cls.suffixes]
    return formats
