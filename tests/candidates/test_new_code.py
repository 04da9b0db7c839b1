"""The code that a comparison tries: files, and revisions of git."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rewindow.candidates.new_code import new_code
from rewindow.errors import InputError
from rewindow.settings.config import Config


@pytest.fixture
def repository(tmp_path: Path) -> Config:
    """Settings whose applications lie in a repository; the newest commit has changed what the
    application imports.
    """
    folder = tmp_path / "project" / "applications"
    (folder / "helpers").mkdir(parents=True)

    def git(*words: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
        subprocess.run(
            ["git", "-C", str(tmp_path / "project"), *who, *words],
            check=True,
            capture_output=True,
        )

    git("init", "-q")
    for text in ("OLD = 1\n", "NEW = 2\n"):
        (folder / "spending.py").write_text("from helpers import rates\n")
        (folder / "helpers" / "rates.py").write_text(text)
        git("add", "-A")
        git("commit", "-q", "-m", text)
    (folder / "helpers" / "rates.py").write_text("NEWEST = 3\n")
    return Config(state=tmp_path / "state", applications=[folder])


def test_revision_restores_the_committed_folder_with_its_imported_modules(
    repository: Config,
) -> None:
    with new_code(repository, "spending", "HEAD~1") as (folder, words):
        assert (folder / "helpers" / "rates.py").read_text() == "OLD = 1\n"
        assert words.startswith("the code of revision HEAD~1 (")
    assert not folder.exists()
    assert (repository.applications[0] / "helpers" / "rates.py").read_text() == "NEWEST = 3\n"


def test_application_file_can_have_any_name_and_imports_from_its_folder(
    repository: Config,
    tmp_path: Path,
) -> None:
    (tmp_path / "edited.py").write_text("import beside\n")
    (tmp_path / "beside.py").write_text("X = 1\n")
    (tmp_path / "large.csv").write_text("1\n")
    with new_code(repository, "spending", str(tmp_path / "edited.py")) as (folder, words):
        assert {path.name for path in folder.iterdir()} == {"spending.py", "edited.py", "beside.py"}
        assert (folder / "spending.py").read_text() == "import beside\n"
        assert words == f"the code of {tmp_path / 'edited.py'}"


@pytest.mark.parametrize("given", ["nosuch", "HEAD~9", "nosuch.py"])
def test_invalid_code_arguments_are_rejected(repository: Config, given: str) -> None:
    with (
        pytest.raises(InputError, match=f'"{given}" is neither a file nor a revision'),
        new_code(repository, "spending", given),
    ):
        pass
    with (
        pytest.raises(InputError, match="neither") as caught,
        new_code(repository, "heartbeat_x", "HEAD"),
    ):
        pass
    assert "has no file" in caught.value.detail
