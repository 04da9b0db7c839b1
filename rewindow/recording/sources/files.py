"""Where a source's rows are: files, folders, patterns, members of zip files, files inside installed packages.

The order of a source's files is fixed by their names, and a row's position is file and row number; both decide ties
between tuples that arrived at the same time.
"""

from __future__ import annotations

import glob
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import IO, cast

import pyarrow as pa

from rewindow.errors import InputError

FORMATS = ("csv", "json", "parquet", "delta")
_SUFFIXES = {
    ".csv": "csv", ".tsv": "csv", ".txt": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json",
    ".parquet": "parquet", ".pq": "parquet",
}  # fmt: skip
_COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_PACKAGE = "package:"


@dataclass(frozen=True)
class SourceFile:
    """A file of a source, or a member of a zip file: what is read from its beginning to its end.

    Attributes:
        name: how positions name it, such as "flights.csv.zip/flights.csv".
        path: the file that holds it.
        open: opens its bytes.
        size: bytes of the file, or of the member of a zip file.
        constants: columns that the file itself does not hold (a Delta table's partition values).
        seen: whether an earlier run has read it, and only tuples that waited then are to be taken now.
    """

    name: str
    path: Path
    open: Callable[[], IO[bytes]]
    size: int
    constants: Mapping[str, str | None] = field(default_factory=dict)
    seen: bool = False


def source_format(name: str, source: str, given: str | None) -> str:
    """Returns the format of a stream's source, as set or told from its name.

    Raises:
        InputError: the format is unknown, or the name does not tell it.
    """
    if given:
        if given.lower() not in FORMATS:
            known = ", ".join(FORMATS)
            raise InputError(f'format "{given}" of stream "{name}" is unknown, known are {known}')
        return given.lower()
    path = Path(source)
    if (path / "_delta_log").is_dir():
        return "delta"
    found = _told(path.name)
    if not found and path.is_dir():
        found = [kind for child in sorted(path.iterdir()) for kind in _told(child.name)]
    if not found and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            found = [kind for member in sorted(archive.namelist()) for kind in _told(member)]
    if not found:
        raise InputError(
            f'source "{source}" of stream "{name}" does not tell its format by its name',
            hint=f"Set format to one of {', '.join(FORMATS)}.",
        )
    return found[0]


def _told(name: str) -> list[str]:
    """Returns the formats that the suffixes of a file's name tell, the last one first."""
    suffixes = [suffix.lower() for suffix in Path(name).suffixes]
    return [_SUFFIXES[suffix] for suffix in reversed(suffixes) if suffix in _SUFFIXES]


def find_source_files(name: str, source: str, kind: str) -> list[SourceFile]:
    """Returns the files of a source, in order of their names.

    Raises:
        InputError: the source, the package or a file in it is not there, or holds nothing of this format.
    """
    paths = [_in_package(name, source)] if source.startswith(_PACKAGE) else _on_disk(source)
    files = [file for path in paths for file in _files_of(path, kind)]
    if not files:
        raise InputError(
            f'source "{source}" of stream "{name}" is not there',
            detail=f"Nothing of format {kind} was found.",
            hint="A relative path counts from the folder of rewindow.toml.",
        )
    return files


def _on_disk(source: str) -> list[Path]:
    path = Path(source)
    if path.is_dir():
        return sorted(child for child in path.iterdir() if child.is_file() and child.name[0] not in "._")
    return [path] if path.is_file() else sorted(Path(found) for found in glob.glob(source) if Path(found).is_file())


def _in_package(name: str, source: str) -> Path:
    """Returns a file of an installed package; the package is not imported, which may fail or take long."""
    package, _, inside = source.removeprefix(_PACKAGE).partition("/")
    try:
        distribution = metadata.distribution(package)
    except metadata.PackageNotFoundError as error:
        raise InputError(
            f'package "{package}" of stream "{name}" is not installed', hint=f"Install it: pip install {package}."
        ) from error
    for relative in (f"{package}/{inside}", inside):
        path = Path(str(distribution.locate_file(relative)))
        if path.is_file():
            return path
    held = sorted(str(file) for file in distribution.files or [] if file.suffix in {*_SUFFIXES, ".zip"})
    raise InputError(
        f'file "{inside}" is not in package "{package}" of stream "{name}"',
        hint=f"It holds: {', '.join(held[:10]) or 'no files of a known format'}.",
    )


def _files_of(path: Path, kind: str) -> list[SourceFile]:
    if path.suffix.lower() == ".zip":
        return _members(path, kind)
    compression = _COMPRESSED.get(path.suffix.lower())
    told = _SUFFIXES.get(Path(path.stem).suffix.lower() if compression else path.suffix.lower(), kind)
    if told != kind:
        return []

    def opened() -> IO[bytes]:
        return cast("IO[bytes]", pa.input_stream(str(path), compression=compression))

    return [SourceFile(path.name, path, opened, path.stat().st_size)]


def _members(path: Path, kind: str) -> list[SourceFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            members = sorted(archive.infolist(), key=lambda member: member.filename)
    except zipfile.BadZipFile as error:
        raise InputError(f'source file "{path.name}" is not a zip file') from error
    wanted = [member for member in members if _SUFFIXES.get(Path(member.filename).suffix.lower()) == kind]
    return [
        SourceFile(f"{path.name}/{member.filename}", path, _opener(path, member.filename), member.file_size)
        for member in wanted
    ]


def _opener(path: Path, member: str) -> Callable[[], IO[bytes]]:
    def opened() -> IO[bytes]:
        return zipfile.ZipFile(path).open(member)

    return opened
