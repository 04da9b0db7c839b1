"""An input operator as source: asked once for each window, recorded first, never asked again (O2,
O7, O8, X45).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rewindow.errors import InputError
from rewindow.recording.sources.source import SourcePosition, open_source
from rewindow.settings.config import StreamConfig
from rewindow.testing import run_input
from tests.recording.conftest import Bench

BEGIN = "1970-01-01T02:46:40Z"
END = "1970-01-01T02:47:20Z"
"""Windows 1000 to 1003, of ten seconds."""
MODULE = '''
from datetime import timedelta
import pyarrow as pa
from rewindow.operators import InputOperator

class Beats(InputOperator):
    """A beat every few seconds; in odd windows nothing comes."""

    columns = pa.schema([("at", pa.timestamp("us", "UTC")), ("k", pa.string()), ("n", pa.int32())])
    every_s: int = 4
    notes: str = ""

    def begin_window(self, window_id):
        self._odd = window_id % 2
        if self.notes:
            with open(self.notes, "a") as stream:
                stream.write(f"{window_id}\\n")

    def emit_tuples(self, start, end):
        at, n = start, 0
        while not self._odd and at < end:
            self.emit(at, "a", n=n)
            at, n = at + timedelta(seconds=self.every_s), n + 1
'''
LAWS = {
    "outside": ("def setup(self):\n        self.emit(1)", "cannot emit a tuple: no window is open"),
    "columns": (
        "def emit_tuples(self, start, end):\n        self.emit(start)",
        "must emit values of the columns at, k, n",
    ),
    "late": (
        "def emit_tuples(self, start, end):\n        self.emit(end, 'a', 1)",
        "emitted a tuple in window 1000 that did not arrive in it: at is",
    ),
    "no zone": (
        "def emit_tuples(self, start, end):\n        self.emit(start.replace(tzinfo=None), 'a', 1)",
        "that did not arrive in it",
    ),
    "type": (
        "def emit_tuples(self, start, end):\n        self.emit(start, 'a', 'x')",
        'column "n" of a tuple of Beats',
    ),
}


def write(folder: Path, text: str = MODULE) -> Path:
    file = folder / "beats.py"
    file.write_text(text)
    return file


def rows(
    folder: Path,
    position: SourcePosition | None = None,
    **settings: Any,
) -> list[dict[str, Any]]:
    given = {"begin": BEGIN, "end": END, **settings}
    stream = StreamConfig(source="beats.py", arrived_at="at", width="10 s", source_settings=given)
    source = open_source("s", stream, folder)
    contents = source.scan(position or SourcePosition(), None, None)
    found = [table for part in contents.files for table in source.rows(contents, part)]
    return pa.concat_tables(found).to_pylist() if found else []


def test_source_operator_is_called_for_every_unsealed_window_with_its_bounds(
    tmp_path: Path,
) -> None:
    # Rules: O8, X45
    notes = tmp_path / "notes"
    write(tmp_path)
    found = rows(tmp_path, every_s=5, notes=str(notes))
    assert [(row["__row"], f"{row['at']:%H:%M:%S}", row["n"]) for row in found] == [
        (1, "02:46:40", 0),
        (2, "02:46:45", 1),
        (3, "02:47:00", 0),
        (4, "02:47:05", 1),
    ]
    assert notes.read_text().split() == ["1000", "1001", "1002", "1003"]
    assert [row["n"] for row in rows(tmp_path, SourcePosition(version=1003, sealed_last=1001))] == [
        0,
        1,
        2,
    ]
    assert not rows(tmp_path, SourcePosition(version=1003, sealed_last=1003))


@pytest.mark.parametrize("case", LAWS)
def test_invalid_emission_is_reported_with_window_and_callback(tmp_path: Path, case: str) -> None:
    # Rules: O54
    text, words = LAWS[case]
    write(tmp_path, f"{MODULE}\n    {text}\n")
    with pytest.raises(InputError) as error:
        rows(tmp_path)
    told = "\n".join([str(error.value), *getattr(error.value, "__notes__", [])])
    assert words in told
    assert case not in ("outside", "columns") or "of Beats" in told


@pytest.mark.parametrize(
    ("settings", "text", "words"),
    [
        (
            {"every_s": "often"},
            MODULE,
            'setting "source_settings.every_s" of stream "s" is \'often\'',
        ),
        ({"evry_s": 3}, MODULE, 'setting "source_settings.evry_s"'),
        (
            {"begin": "soon"},
            MODULE,
            'setting "source_settings.begin" of stream "s" is "soon", not a time',
        ),
        ({"operator": "Beat"}, MODULE, 'has no input operator "Beat"'),
        ({}, "x = 1", "has 0 input operators"),
        ({}, "x = 1 / 0", "cannot be imported: ZeroDivisionError"),
        ({}, MODULE.replace('("at",', '("when",'), 'a pyarrow schema with the column "at"'),
    ],
)
def test_invalid_source_settings_are_rejected_before_anything_is_read(
    tmp_path: Path,
    settings: dict[str, Any],
    text: str,
    words: str,
) -> None:
    write(tmp_path, text)
    with pytest.raises(InputError) as error:
        rows(tmp_path, **settings)
    assert words in str(error.value)


def test_operator_source_is_recorded_and_continues_after_its_last_seal(
    bench: Bench,
    tmp_path: Path,
) -> None:
    # Rules: R56, O2, O7, X45
    notes = bench.root / "notes"
    asked = {"source": str(write(bench.root)), "columns": None, "keys": ["k"]}
    given = {"begin": BEGIN, "end": END, "notes": str(notes)}
    first = bench.record(**asked, source_settings=given, sealed_to=None)
    assert (first.recorded, first.waiting) == (6, 0)
    assert bench.rows("select window_id, tuples from w order by window_id") == [
        {"window_id": window, "tuples": 3 * (1 - window % 2)} for window in range(1000, 1004)
    ]
    later = "1970-01-01T02:47:50Z"
    second = bench.record(**asked, source_settings={**given, "end": later}, sealed_to=later)
    assert second.recorded == 6
    assert notes.read_text().split() == [str(window) for window in range(1000, 1007)]
    again = bench.record(**asked, source_settings={**given, "end": later}, sealed_to=later)
    assert again.recorded == 0 and len(notes.read_text().split()) == 7


def test_run_input_calls_the_source_operator_window_by_window(tmp_path: Path) -> None:
    space: dict[str, Any] = {}
    exec(compile(write(tmp_path).read_text(), "beats.py", "exec"), space)
    found = run_input(space["Beats"](every_s=5), 1000, 1001, width="10 s")
    assert [[row["n"] for row in found[window]] for window in (1000, 1001)] == [[0, 1], []]
