"""What was taken of a source's files is not read again; what changed is, and is compared."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rewindow.errors import InputError
from rewindow.recording import record as record_module
from rewindow.recording.sources.files import find_source_files
from rewindow.recording.sources.readers import csv_rows
from rewindow.recording.sources.source import SourceFile, SourcePosition, open_source
from rewindow.recording.sources.taken import FileRows, remember, select_files, settings_digest
from rewindow.settings.config import StreamConfig
from tests.recording.conftest import HEADER, Bench

STREAM = StreamConfig(source="in", arrived_at="at")


def files_in(folder: Path) -> list[SourceFile]:
    return find_source_files("s", str(folder), {".csv"})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in "abc":
        (tmp_path / f"{name}.csv").write_text(f"k\n{name}\n")
    return tmp_path


def taken(folder: Path, *waiting: str) -> SourcePosition:
    """Returns the position behind the files of a folder."""
    files = files_in(folder)
    seen = {file.name: FileRows(2, 2 if file.name in waiting else None) for file in files}
    noted = remember(files, seen, SourcePosition())
    return SourcePosition.from_text(
        SourcePosition(-1, 1000, {}, noted, settings_digest(STREAM)).to_text()
    )


def test_second_run_reads_only_new_files_and_files_with_pending_tuples(folder: Path) -> None:
    position = taken(folder, "b.csv")
    (folder / "d.csv").write_text("k\nd\n")
    os.utime(folder / "a.csv", ns=(7, 7))
    found = select_files(files_in(folder), position, STREAM)
    assert [(file.name, file.seen_rows) for file in found.files] == [("b.csv", 2), ("d.csv", 0)]
    assert (found.whole, found.warnings) == (False, [])


@pytest.mark.parametrize("content", ["k\nA\n", "k\na\nb\nc\n", ""])
def test_changed_file_causes_a_full_read_and_is_reported(folder: Path, content: str) -> None:
    position = taken(folder)
    (folder / "a.csv").write_text(content)
    found = select_files(files_in(folder), position, STREAM)
    assert ([file.name for file in found.files], found.whole) == (["a.csv", "b.csv", "c.csv"], True)
    named = [
        'source file "a.csv" has changed since it was recorded' in words for words in found.warnings
    ]
    assert named == ([] if len(content) > len("k\na\n") else [True])


def test_renamed_source_file_is_recognized_and_a_copy_is_treated_as_new(folder: Path) -> None:
    position = taken(folder)
    (folder / "a.csv").rename(folder / "e.csv")
    assert select_files(files_in(folder), position, STREAM).files == []
    (folder / "f.csv").write_bytes((folder / "e.csv").read_bytes())
    assert [file.name for file in select_files(files_in(folder), position, STREAM).files] == [
        "f.csv"
    ]


def test_deleted_file_is_reported_if_it_had_pending_tuples(folder: Path) -> None:
    position = taken(folder, "b.csv")
    (folder / "a.csv").unlink()
    assert select_files(files_in(folder), position, STREAM).warnings == []
    (folder / "b.csv").unlink()
    assert "such as b.csv" in select_files(files_in(folder), position, STREAM).warnings[0]


def test_changed_source_settings_cause_a_full_read(folder: Path) -> None:
    position = taken(folder)
    files = files_in(folder)
    assert select_files(files, position, STREAM.model_copy(update={"null_values": ["NA"]})).whole
    assert not select_files(
        files,
        position,
        STREAM.model_copy(update={"sealed_to": "2020-01-01"}),
    ).whole


def test_file_that_changed_during_its_read_is_read_again(folder: Path) -> None:
    files = files_in(folder)
    os.utime(folder / "a.csv", ns=(7, 7))
    noted = remember(
        files,
        dict.fromkeys(["a.csv", "b.csv", "c.csv"], FileRows(2, None)),
        SourcePosition(),
    )
    assert [entry.checksum != "" for entry in noted.values()] == [False, True, True]
    os.utime(folder / "a.csv", ns=(files[0].modified_ns, files[0].modified_ns))
    position = SourcePosition(-1, 1000, {}, noted, settings_digest(STREAM))
    assert select_files(files_in(folder), position, STREAM).whole


def row(key: str, second: int) -> str:
    return f"{HEADER}{key},1970-01-01T02:47:{second:02}Z,1\n"


def test_only_the_new_file_among_many_is_read(bench: Bench) -> None:
    (bench.root / "in").mkdir()
    for number in range(20):
        (bench.root / "in" / f"{number:02}.csv").write_text(row(f"k{number}", number))
    settings: dict[str, Any] = {"source": str(bench.root / "in"), "sealed_to": None}
    first = bench.record(**settings)
    assert (first.recorded, first.waiting, first.files_unchanged) == (10, 10, 0)
    (bench.root / "in" / "new.csv").write_text(row("new", 21) + "late,1970-01-01T02:47:05Z,1\n")
    second = bench.record(**settings)
    assert (second.recorded, second.late, second.waiting, second.files_unchanged) == (10, 1, 1, 10)
    assert [key for _, _, key, _ in bench.tuples()] == [f"k{number}" for number in range(20)]
    third = bench.record(**settings)
    assert (third.recorded, third.late, third.known, third.files_unchanged) == (0, 0, 0, 20)
    (bench.root / "in" / "03.csv").write_text(row("q3", 3))
    fourth = bench.record(**settings)
    assert (fourth.late, fourth.changed) == (0, [{"window": 1002, "gone": 1, "new": 2}])
    assert any('"03.csv" has changed' in warning for warning in fourth.warnings)


def test_damaged_record_of_read_files_only_causes_a_full_read(bench: Bench) -> None:
    bench.write(row("a", 1)[len(HEADER) :])
    bench.record()
    (bench.config().windows_table("s") / "_rewindow" / "taken.json").write_text('{"table"')
    assert (bench.record().already_there, len(bench.tuples())) == (1, 1)


def test_late_tuple_of_a_killed_run_is_added_once(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (bench.root / "in").mkdir()
    settings: dict[str, Any] = {"source": str(bench.root / "in")}
    (bench.root / "in" / "1.csv").write_text(row("a", 1))
    bench.record(**settings)
    (bench.root / "in" / "2.csv").write_text(row("late", 2))
    with monkeypatch.context() as patch:
        patch.setattr(
            record_module._Run,
            "_move_on",
            lambda *_, **__: (_ for _ in ()).throw(RuntimeError("died")),
        )
        with pytest.raises(RuntimeError, match="died"):
            bench.record(**settings)
    assert len(bench.aside()) == 1
    assert (bench.record(reopen=True, **settings).taken, len(bench.tuples()), bench.aside()) == (
        1,
        2,
        [],
    )
    again = bench.record(**settings)
    assert (again.late, again.files_unchanged, len(bench.tuples())) == (0, 2, 2)


LINES = [f"k{number},{number}\n" for number in range(8)]


def marked(path: Path, last: int, waits: int | None, *, quotes: bool = True) -> SourcePosition:
    """Returns the position behind a file of lines, of which a run has seen so many rows."""
    files = [replace(file, lines=True, quotes=quotes) for file in files_in(path.parent)]
    noted = remember(files, {files[0].name: FileRows(last, waits)}, SourcePosition())
    return SourcePosition(-1, 1000, {}, noted, settings_digest(STREAM))


@pytest.mark.parametrize(
    ("waits", "byte", "row"),
    [(None, 26, 6), (6, 26, 6), (4, 16, 4), (2, 6, 2)],
)
def test_appended_file_is_read_from_its_first_pending_row(
    tmp_path: Path,
    waits: int,
    byte: int,
    row: int,
) -> None:
    path = tmp_path / "s.csv"
    path.write_text("key,n\n" + "".join(LINES[:4]))
    position = marked(path, 5, waits)
    path.write_text("key,n\n" + "".join(LINES))
    files = [replace(file, lines=True, quotes=True) for file in files_in(tmp_path)]
    found = select_files(files, position, STREAM)
    assert [(file.begin_byte, file.begin_row, file.seen_rows) for file in found.files] == [
        (byte, row, 5)
    ]
    assert (found.whole, found.warnings) == (False, [])
    stream = StreamConfig(source="in", arrived_at="at", columns="key STRING, n INT")
    rows = pa.concat_tables(csv_rows(found.files[0], ["key", "n"], stream, ()))
    assert rows["__row"].to_pylist() == list(range(row, 10))
    assert rows["key"].to_pylist() == [f"k{number - 2}" for number in range(row, 10)]


@pytest.mark.parametrize(
    ("before", "last", "after"),
    [
        ("key,n\na,1\nb,2", 3, "key,n\na,1\nb,23\nc,3\n"),
        ('key,n\n"a\nb",1\n', 2, 'key,n\n"a\nb",1\nc,3\n'),
        ('key,n\na,"1\n', 2, 'key,n\na,"1\n2",1\n'),
        ("key,n\na,1\n", 2, "key,n\nA,1\nb,2\n"),
        ("key,n\ra,1\r", 2, "key,n\ra,1\rb,2\r"),
    ],
    ids=[
        "last line not complete",
        "a row of two lines",
        "open quote",
        "other bytes",
        "no line ends",
    ],
)
def test_file_with_multiline_rows_or_a_changed_beginning_is_read_completely(
    tmp_path: Path,
    before: str,
    last: int,
    after: str,
) -> None:
    path = tmp_path / "s.csv"
    path.write_bytes(before.encode())
    position = marked(path, last, None)
    path.write_bytes(after.encode())
    found = select_files(
        [replace(file, lines=True, quotes=True) for file in files_in(tmp_path)],
        position,
        STREAM,
    )
    assert (found.whole, found.files[0].begin_byte, found.files[0].seen_rows) == (True, 0, 0)
    assert bool(found.warnings) == ("A" in after)


def test_bad_rows_of_a_partly_read_file_keep_their_row_numbers(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text("key,n\na,1\nb,2\nc,3,3\nd,4\n")
    file = replace(files_in(tmp_path)[0], begin_byte=10, begin_row=3)
    stream = StreamConfig(source="in", arrived_at="at", columns="key STRING, n INT")
    rows = pa.concat_tables(csv_rows(file, ["key", "n"], stream, ()))
    pairs = zip(rows["__row"].to_pylist(), rows["__bad"].to_pylist(), strict=True)
    assert sorted(pairs, key=lambda pair: pair[0]) == [
        (3, None),
        (4, "row has 3 columns, 2 expected"),
        (5, None),
    ]


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_growing_file_yields_the_same_tuples_as_the_complete_file(bench: Bench, kind: str) -> None:
    second_of = [0, 3, 11, 12, 1, 14, 25, 24, 22, 13, 37, 36, 2, 41]
    path = bench.root / f"grown.{kind}"
    head = HEADER if kind == "csv" else ""
    lines = []
    for number, second in enumerate(second_of):
        at = f"1970-01-01T02:47:{second:02}Z"
        n = "x" if number == 5 else str(number)
        as_json = f'{{"k": "k{number}", "at": "{at}", "n": "{n}"}}\n' if n == "x" else ""
        as_json = as_json or f'{{"k": "k{number}", "at": "{at}", "n": {n}}}\n'
        lines.append(as_json if kind == "json" else f"k{number},{at},{n}\n")
    settings: dict[str, Any] = {"source": str(path), "sealed_to": None, "malformed_max_share": 1.0}
    begins: list[Any] = []
    seen = 0
    read = record_module.open_source

    def watched(*args: Any, **named: Any) -> Any:
        """Notes where each reading begins."""
        source = read(*args, **named)
        scan = source.scan

        def looked(*given: Any, **named: Any) -> Any:
            contents = scan(*given, **named)
            begins.extend(file.begin_row for file in contents.files)
            return contents

        source.scan = looked  # type: ignore[method-assign, assignment]
        return source

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_module, "open_source", watched)
        for count in (3, 8, 14):
            path.write_text(head + "".join(lines[:count]))
            result = bench.record(**settings)
            seen += result.recorded
    assert begins == ([1, 4, 8] if kind == "csv" else [1, 3, 7])
    assert (seen, result.waiting) == (9, 1)
    reasons = bench.rows("select reason, position from q order by 1, 2")
    assert len(bench.tuples()) == 9
    assert sorted((row["reason"].split(":")[0], row["position"]) for row in reasons) == [
        ("late", f"{path.name}:{number}")
        for number in ((11, 14, 6) if kind == "csv" else (10, 13, 5))
    ] + [("malformed", f"{path.name}:{7 if kind == 'csv' else 6}")]


def test_empty_source_files_are_skipped_until_they_have_content(tmp_path: Path) -> None:
    # Another process may be writing them; a source of only empty files is an error.
    for name in "ab":
        (tmp_path / f"{name}.csv").touch()
    source = open_source(
        "s",
        StreamConfig(source=str(tmp_path), arrived_at="at", format="csv"),
        tmp_path,
    )
    with pytest.raises(InputError, match="all 2 files of source .* are empty"):
        source.scan(SourcePosition(), None, None)
    (tmp_path / "b.csv").write_text("at\n1\n")
    contents = source.scan(SourcePosition(), None, None)
    assert [file.name for file in contents.present] == ["b.csv"]
    assert contents.warnings == ["1 files of the source are empty, such as a.csv"]
