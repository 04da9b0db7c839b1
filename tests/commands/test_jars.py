"""`rewindow jars`: what is whole stays, what is damaged or missing is fetched, another jar is
refused.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from rewindow.cli import main
from rewindow.spark import jars

WHOLE = {"delta-a-1.0.jar": b"a", "delta-b-1.0.jar": b"b"}


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What is asked of Maven Central; it answers with jars that are whole."""
    asked: list[list[str]] = []

    def resolve(work: Path, names: list[str]) -> None:
        asked.append(names)
        (work / "jars").mkdir()
        for name in names:
            (work / "jars" / name).write_bytes(WHOLE[name])

    digests = {name: hashlib.sha256(content).hexdigest() for name, content in WHOLE.items()}
    monkeypatch.setattr(jars, "expected_jars", lambda: digests)
    monkeypatch.setattr("rewindow.commands.jars.expected_jars", lambda: digests)
    monkeypatch.setattr(jars, "_resolve", resolve)
    return asked


def _run(folder: Path) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["jars", str(folder)])
    return int(ended.value.code or 0)


def test_jars_command_downloads_only_missing_or_damaged_jars(
    tmp_path: Path,
    fetched: list[list[str]],
) -> None:
    assert _run(tmp_path) == 0
    assert _run(tmp_path) == 0
    (tmp_path / "delta-b-1.0.jar").write_bytes(b"")
    assert _run(tmp_path) == 0
    assert fetched == [sorted(WHOLE), ["delta-b-1.0.jar"]]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == WHOLE


def test_jars_command_rejects_a_jar_with_a_wrong_checksum_and_stores_nothing(
    tmp_path: Path,
    fetched: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(WHOLE, "delta-a-1.0.jar", b"something else")
    assert _run(tmp_path) != 0
    assert 'jar "delta-a-1.0.jar" has the wrong checksum' in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
