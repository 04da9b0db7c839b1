"""A source that is not as the settings say: what is wrong is named with what is there and what to
write; no Spark.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rewindow.errors import InputError
from rewindow.recording.seal_range import SealRange
from rewindow.recording.sources.source import SourcePosition, open_source
from rewindow.settings.config import StreamConfig


def refused(root: Path, declared: list[str] | None = None, **settings: Any) -> InputError:
    stream = StreamConfig(**{"arrived_at": "at", **settings})
    with pytest.raises(InputError) as caught:
        open_source("s", stream, root).scan(SourcePosition(), declared, None)
    return caught.value


@pytest.mark.parametrize(
    ("source", "primary", "more"),
    [
        (
            "empty",
            "contains no file with a known suffix, so its format is unknown",
            "setting format",
        ),
        ("clikcs.csv", "does not exist", 'Did you mean "clicks.csv"?'),
        ("nowhere/clicks.csv", "does not exist", "Folder "),
        ("nowhere", "does not exist, and its name has no known suffix", ""),
        (
            "days/*.csv",
            "is a pattern that matches no file",
            "resolved from the folder of rewindow.toml",
        ),
    ],
)
def test_source_without_files_is_reported_by_cause(
    tmp_path: Path,
    source: str,
    primary: str,
    more: str,
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "clicks.csv").write_text("k,at\n")
    error = refused(tmp_path, source=source)
    assert primary in error.primary
    assert more in error.hint


def test_folder_with_other_files_is_reported_with_its_contents(tmp_path: Path) -> None:
    (tmp_path / "src" / "2026-03-01").mkdir(parents=True)
    error = refused(tmp_path, source="src", format="csv")
    assert "is a folder without files of its format" in error.primary
    assert "The folder contains: 2026-03-01." in error.detail and "src/*/*.csv" not in error.primary


def test_file_without_read_permission_is_reported_with_a_command(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "s.csv").write_text("k,at\n")
    monkeypatch.setattr(pa, "input_stream", denied)
    error = refused(tmp_path, source="s.csv")
    assert (
        error.primary.endswith('s.csv" cannot be read: permission denied') and "ls -l" in error.hint
    )


@pytest.mark.parametrize(
    ("text", "declared", "primary", "hint"),
    [
        ("k;at;n\na;1;2\n", None, "has a single column: k;at;n", 'delimiter = ";"'),
        ("k\tat\na\t1\n", ["k", "at"], "has a single column", 'delimiter = "\\t"'),
        (
            "a,2026-03-01,5\nb,2026-03-02,6\n",
            ["k", "at", "n"],
            "contains none of the declared columns",
            "header = false",
        ),
        (
            "key,At\na,1\n",
            ["key", "at"],
            'column "at" is not in source file',
            'Did you mean "At"? The file has the columns: key, At.',
        ),
        (
            "k,arrivd_at\na,1\n",
            ["k", "arrived_at"],
            'column "arrived_at" is not',
            'Did you mean "arrivd_at"?',
        ),
    ],
)
def test_first_row_that_does_not_match_the_columns_is_reported_with_the_setting(
    tmp_path: Path,
    text: str,
    declared: list[str] | None,
    primary: str,
    hint: str,
) -> None:
    (tmp_path / "s.csv").write_text(text)
    error = refused(tmp_path, declared, source="s.csv")
    assert primary in error.primary
    assert hint in error.hint


def test_error_about_a_bound_in_the_future_suggests_an_alternative() -> None:
    stream = StreamConfig(source="s.csv", arrived_at="at", sealed_to="2999-01-01T00:00Z")
    with pytest.raises(
        InputError,
        match="sealed to 2999-01-01T00:00:00Z: this time is in the future",
    ) as caught:
        SealRange("s", stream).given(None)
    assert "--sealed-to" in caught.value.hint
