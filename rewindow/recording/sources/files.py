"""Finds the files of a source: files, folders, patterns, members of zip files, files inside
installed packages.

The order of a source's files is the order of their names, and a row's position is file and row
number. Both decide the order of tuples that arrived at the same time.
"""

from __future__ import annotations

import codecs
import glob
import os
import zipfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import IO, TYPE_CHECKING, ClassVar, Literal, cast

import pyarrow as pa

from rewindow.errors import InputError
from rewindow.names import did_you_mean
from rewindow.recording.sources.columns import takes_what_appears
from rewindow.recording.sources.source import (
    PACKAGE,
    SourceContents,
    SourceFile,
    SourcePosition,
    is_hidden,
    known_sources,
)
from rewindow.recording.sources.taken import select_files
from rewindow.sequences import names_of
from rewindow.settings.config import StreamConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LISTED = 10
_NOT_THERE_YET = "Run the command again when the file has been written completely."
_COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}


class FileSource:
    """Base class of sources that read files. A subclass for a format defines columns and rows."""

    suffixes: ClassVar[frozenset[str]] = frozenset()
    settings: ClassVar[frozenset[str]] = frozenset()
    lines: ClassVar[Literal["no", "each a row", "rows may be longer in quotes"]] = "no"
    """Whether each row is a line of the file's bytes. If so, reading a file that has grown resumes
    at its old end.
    """
    ordered_by_content: ClassVar[bool] = False
    """See Source."""

    def __init__(self, name: str, stream: StreamConfig, place: str) -> None:
        self.name = name
        self.stream = stream
        self.place = place

    @classmethod
    def is_at(cls, path: Path) -> bool:
        """See Source. The file name determines the format."""
        return False

    def check(self) -> None:
        """See Source. Every value of the settings is valid."""

    def frame(self, spark: SparkSession, contents: SourceContents) -> DataFrame | None:
        """See Source. Spark does not read these files directly."""
        return None

    def files(self) -> list[SourceFile]:
        """Returns the files of the source, see find_source_files.

        Files that consist of uncompressed lines are marked.
        """
        files = find_source_files(self.name, self.place, self.suffixes)
        if self.lines == "no" or not _keeps_line_ends(self.stream.encoding):
            return files
        return [
            replace(file, lines=_is_plain(file), quotes=self.lines != "each a row")
            for file in files
        ]

    def contents(self, position: SourcePosition) -> SourceContents:
        """Returns the files that have not been read yet. Columns are not chosen yet."""
        files = self.files()
        present = [file for file in files if file.size]
        if not present:
            raise _all_empty(self.place, files)
        found = select_files(present, position, self.stream)
        empty = [file.name for file in files if not file.size]
        warnings = (
            [f"{len(empty):,} files of the source are empty, such as {empty[0]}"] if empty else []
        )
        return SourceContents(
            found.files,
            warnings=[*warnings, *found.warnings],
            whole=found.whole,
            present=present,
        )

    def typed_files(self, contents: SourceContents) -> list[SourceFile]:
        """Returns the files whose columns are considered if each file has types: the first file,
        and the files to read.
        """
        first = contents.present[0]
        return [first, *(file for file in contents.files if file is not first)]

    def looked_at(
        self,
        contents: SourceContents,
        declared: Sequence[str] | None,
    ) -> list[SourceFile]:
        """Returns the files whose columns are considered.

        This is the first file. If neither the settings nor a declaration names the columns, the
        files to read are included.
        """
        first = contents.present[0]
        more = contents.files if takes_what_appears(self.stream, declared) else []
        return [first, *(file for file in more if file is not first)]


def _all_empty(place: str, files: Sequence[SourceFile]) -> InputError:
    if len(files) == 1:
        return InputError(f'source file "{files[0].name}" is empty', hint=_NOT_THERE_YET)
    return InputError(
        f'all {len(files):,} files of source "{place}" are empty',
        hint="Run the command again when the files have been written completely.",
    )


def _keeps_line_ends(encoding: str) -> bool:
    """Returns whether the byte of a line end has no other meaning in an encoding."""
    name = codecs.lookup(encoding).name
    return name in ("utf-8", "ascii") or name.startswith(("iso8859", "cp125"))


def _is_plain(file: SourceFile) -> bool:
    return file.name == file.path.name and file.path.suffix.lower() not in _COMPRESSED


def find_source_files(name: str, source: str, suffixes: Collection[str]) -> list[SourceFile]:
    """Returns the files of a source, in order of their names.

    Raises:
        InputError: the source, the package or the file in it does not exist, or no file has one of
            these suffixes.
    """
    paths = (
        [_in_package(name, source, suffixes)] if source.startswith(PACKAGE) else _on_disk(source)
    )
    files: list[SourceFile] = []
    for path in paths:
        files += _files_of(path, suffixes)
    if not files:
        raise _nothing_at(name, source, suffixes)
    return files


def _on_disk(source: str) -> list[Path]:
    path = Path(source)
    try:
        if path.is_dir():
            return sorted(
                child for child in path.iterdir() if child.is_file() and not is_hidden(child.name)
            )
        if path.is_file():
            return [path]
        return sorted(filter(Path.is_file, map(Path, glob.glob(source))))
    except PermissionError as error:
        raise unreadable(path, error) from error


def _nothing_at(name: str, source: str, suffixes: Collection[str]) -> InputError:
    """Returns the error for a source without files.

    The path does not exist, is a folder or a file, such as a zip archive, without files of the
    format, or is a pattern without a match.
    """
    path = Path(source)
    wanted = " or ".join(sorted(suffixes))
    if path.is_dir():
        held = sorted(names_of(path.iterdir()))
        return InputError(
            f'source "{source}" of stream "{name}" is a folder without files of its format',
            detail=f"No file has the suffix {wanted}. The folder contains: "
            f"{', '.join(held[:_LISTED]) or 'no files'}.",
            hint="Subfolders are not searched. To include them, use a pattern, such as "
            "folder/*/*.csv.",
        )
    if path.exists():
        return InputError(
            f'source "{source}" of stream "{name}" contains no file of its format',
            detail=f"No file with the suffix {wanted} was found.",
        )
    if set(source) & set("*?["):
        return InputError(
            f'source "{source}" of stream "{name}" is a pattern that matches no file',
            hint="Relative paths are resolved from the folder of rewindow.toml.",
        )
    beside = names_of(path.parent.iterdir()) if path.parent.is_dir() else []
    where = "" if path.parent.is_dir() else f'Folder "{path.parent}" does not exist. '
    return InputError(
        f'source "{source}" of stream "{name}" does not exist',
        hint=f"{did_you_mean(path.name, beside)}{where}Relative paths are resolved from the "
        "folder of rewindow.toml.",
    )


def unreadable(path: Path, error: OSError) -> InputError:
    """Returns the error for a source file that the process has no permission to read."""
    why = os.strerror(error.errno).lower() if error.errno else str(error)
    return InputError(
        f'source file "{path}" cannot be read: {why}',
        hint=f"Check the permissions: ls -l {path}",
    )


def _in_package(name: str, source: str, suffixes: Collection[str]) -> Path:
    """Returns a file of an installed package. The package is not imported, because that may fail or
    be slow.
    """
    package, _, inside = source.removeprefix(PACKAGE).partition("/")
    try:
        distribution = metadata.distribution(package)
    except metadata.PackageNotFoundError as error:
        raise InputError(
            f'package "{package}" of stream "{name}" is not installed',
            hint=f"Install it: pip install {package}.",
        ) from error
    for relative in (f"{package}/{inside}", inside):
        path = Path(str(distribution.locate_file(relative)))
        if path.is_file():
            return path
    held = sorted(
        str(file) for file in distribution.files or [] if file.suffix in {*suffixes, ".zip"}
    )
    raise InputError(
        f'file "{inside}" is not in package "{package}" of stream "{name}"',
        hint=f"The package contains: {', '.join(held[:10]) or 'no files of a known format'}.",
    )


def _files_of(path: Path, suffixes: Collection[str]) -> list[SourceFile]:
    if path.suffix.lower() == ".zip":
        return _members(path, suffixes)
    compression = _COMPRESSED.get(path.suffix.lower())
    told = Path(path.stem).suffix.lower() if compression else path.suffix.lower()
    if told not in suffixes and any(told in cls.suffixes for cls in known_sources().values()):
        return []  # Another format. A suffix without a known format is read as this one.

    def opened() -> IO[bytes]:
        try:
            return cast("IO[bytes]", pa.input_stream(str(path), compression=compression))
        except PermissionError as error:
            raise unreadable(path, error) from error

    found = path.stat()
    return [SourceFile(path.name, path, opened, size=found.st_size, modified_ns=found.st_mtime_ns)]


def _members(path: Path, suffixes: Collection[str]) -> list[SourceFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            members = sorted(archive.infolist(), key=lambda member: member.filename)
    except PermissionError as error:
        raise unreadable(path, error) from error
    except zipfile.BadZipFile as error:
        raise InputError(f'source file "{path.name}" is not a zip file') from error
    modified_ns = path.stat().st_mtime_ns
    files = []
    for member in members:
        if Path(member.filename).suffix.lower() in suffixes and not is_hidden(member.filename):
            file = SourceFile(
                f"{path.name}/{member.filename}",
                path,
                _opener(path, member.filename),
                size=member.file_size,
                modified_ns=modified_ns,
            )
            files.append(file)
    return files


def _opener(path: Path, member: str) -> Callable[[], IO[bytes]]:
    def opened() -> IO[bytes]:
        return zipfile.ZipFile(path).open(member)

    return opened
