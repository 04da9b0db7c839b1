"""A source is a module and nothing else: found by its format or suffix, checked by itself, read
like any other.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rewindow.errors import InputError
from rewindow.recording import sources
from rewindow.recording.sources import source as registry
from rewindow.recording.sources.source import (
    Source,
    SourceContents,
    SourcePosition,
    known_sources,
    open_source,
)
from rewindow.settings.config import StreamConfig

MODULE = """
from dataclasses import replace

import pyarrow as pa

from rewindow.errors import InputError
from rewindow.recording.sources.files import FileSource
from rewindow.recording.sources.readers import with_numbers
from rewindow.recording.sources.source import source

@source("pairs")
class Pairs(FileSource):
    suffixes = frozenset({".pairs"})
    settings = frozenset({"source_settings"})

    def check(self):
        if self.stream.source_settings.get("between", "") == "":
            raise InputError(f'source of stream "{self.name}" needs source_settings.between')

    def scan(self, position, declared, recorded):
        schema = pa.schema([("k", pa.string()), ("at", pa.string())])
        return replace(self.contents(position), columns=["k", "at"], schema=schema)

    def rows(self, contents, part):
        with part.open() as stream:
            lines = stream.read().decode().splitlines()
        pairs = [line.split(self.stream.source_settings["between"]) for line in lines]
        rows = pa.table([[pair[0] for pair in pairs], [pair[1] for pair in pairs]], ["k", "at"])
        yield with_numbers(rows, pa.array(range(1, len(pairs) + 1), pa.int64()))
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that counts as one of those in which sources lie, with a module of a new source in
    it.
    """
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "own_pairs.py").write_text(MODULE)
    monkeypatch.setattr(sources, "__path__", [*sources.__path__, str(folder)])
    monkeypatch.setattr(registry, "_KINDS", dict(known_sources()))
    sys.modules.pop("rewindow.recording.sources.own_pairs", None)
    yield tmp_path
    sys.modules.pop("rewindow.recording.sources.own_pairs", None)


def opened(root: Path, name: str, **settings: Any) -> Source:
    return open_source("s", StreamConfig(source=name, arrived_at="at", **settings), root)


def read(source: Source, declared: Sequence[str] | None = None) -> tuple[SourceContents, pa.Table]:
    contents = source.scan(SourcePosition(), declared, None)
    return contents, pa.concat_tables(
        rows for part in contents.files for rows in source.rows(contents, part)
    )


@pytest.mark.parametrize("given", [None, "pairs"])
def test_module_can_define_a_source_by_suffix_or_format(own: Path, given: str | None) -> None:
    (own / "1.pairs").write_text("a=1\nb=2\n")
    contents, rows = read(opened(own, "1.pairs", format=given, source_settings={"between": "="}))
    assert contents.columns == ["k", "at"]
    assert rows.select(["__row", "k", "at"]).to_pylist() == [
        {"__row": 1, "k": "a", "at": "1"},
        {"__row": 2, "k": "b", "at": "2"},
    ]


def test_custom_source_validates_its_settings_before_reading(own: Path) -> None:
    (own / "1.pairs").write_text("a=1\n")
    with pytest.raises(InputError, match="needs source_settings.between"):
        opened(own, "1.pairs")


def test_unknown_format_error_lists_the_known_formats(own: Path) -> None:
    known = ", ".join(known_sources())
    assert "pairs" in known
    with pytest.raises(InputError, match=f"use one of {known}"):
        opened(own, "1.pairs", format="xml")


@pytest.mark.parametrize(
    ("name", "settings", "named"),
    [
        ("s.parquet", {"delimiter": ";"}, 'setting "delimiter" of stream "s" does not apply to '
                                          'sources of'),
        ("s.csv", {"changed_rows": "skip"}, 'setting "changed_rows"'),
        ("s.csv", {"source_settings": {"x": 1}}, 'setting "source_settings"'),
        ("s.csv", {"delimiter": "||"}, 'setting "delimiter" of stream "s" is "||", not one '
                                       'character'),
        ("s.json", {"null_values": ["NA"], "columns": "k STRING"}, 'setting "null_values"'),
    ],
)  # fmt: skip
def test_setting_unknown_to_the_source_is_rejected(
    tmp_path: Path,
    name: str,
    settings: dict[str, Any],
    named: str,
) -> None:
    with pytest.raises(InputError, match=re.escape(named)):
        opened(tmp_path, name, **settings)
