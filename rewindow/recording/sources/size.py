"""Estimates the number of bytes that a recording will read, before a JVM is started for it."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator
from pathlib import Path

from rewindow.recording.sources.source import SourcePosition, open_source
from rewindow.settings.config import Config


def bytes_to_read(config: Config, name: str) -> int:
    """Returns the bytes of the source's files that have changed since the last recording.

    For files in a package the result is 0, and for a generator it is the estimated size of all
    tuples. The recording itself determines which rows are new. This estimate only decides whether
    the job will be short.
    """
    stream = config.stream(name)
    if stream.format == "generator":
        return open_source(name, stream, config.root).scan(SourcePosition(), None, None).size
    log = config.stream_table(name) / "_delta_log"
    since = log.modified_ms() / 1000 if log.is_dir() else 0.0
    found = (path.stat() for path in _files(stream.source))
    return sum(file.st_size for file in found if file.st_mtime > since)


def _files(source: str) -> Iterator[Path]:
    """Yields the files at a path, in a folder (such as a table), or that match a pattern."""
    path = Path(source)
    places: Iterable[Path]
    if path.is_dir():
        places = path.rglob("*")
    elif path.is_file():
        places = [path]
    else:
        places = map(Path, glob.glob(source))
    for place in places:
        if place.is_file():
            yield place
