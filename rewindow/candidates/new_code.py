"""Provides the new code of a comparison: an application's file, or its folder at a revision of
git.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from rewindow.errors import InputError
from rewindow.settings.config import Config


@contextmanager
def new_code(config: Config, application: str, given: str) -> Iterator[tuple[Path, str]]:
    """Yields a folder with the new code, and a text about its source.

    The folder has the code as `APPLICATION.py` and the modules that it imports from its folder.

    Args:
        config: current settings.
        application: its name.
        given: a file, or a revision of the repository with the application's file.

    Raises:
        InputError: it is neither, or the application does not exist.
    """
    with TemporaryDirectory(prefix="rewindow-code-") as scratch:
        folder = Path(scratch)
        file = Path(given)
        if file.is_file():
            _copy(file.parent, folder)
            shutil.copyfile(file, folder / f"{application}.py")
            yield folder, f"the code of {given}"
            return
        own = _folder_of(config, application, given)
        commit = _git(
            own,
            "rev-parse",
            "--verify",
            "--quiet",
            "--short=12",
            f"{given}^{{commit}}",
        )
        if commit is None:
            raise _neither(
                given,
                f"No file has this name, and the Git repository of {own} has no such revision.",
            )
        _extract(own, commit.decode().strip(), folder)
        if not (folder / f"{application}.py").is_file():
            raise _neither(
                given, f"The file {application}.py does not exist in {own} at this revision."
            )
        yield folder, f"the code of revision {given} ({commit.decode().strip()})"


def _folder_of(config: Config, application: str, given: str) -> Path:
    """Returns the folder in the settings that contains the application's file."""
    found = [folder for folder in config.applications if (folder / f"{application}.py").is_file()]
    if not found:
        raise _neither(
            given,
            f"No file has this name, and {application} has no file, so it cannot be a revision.",
        )
    return found[0]


def _extract(folder: Path, commit: str, target: Path) -> None:
    archive = _git(folder, "archive", "--format=tar", commit, ".")
    if archive is None:
        raise _neither(commit, f"Folder {folder} does not exist at this revision.")
    with (
        TemporaryDirectory(prefix="rewindow-code-") as scratch,
        tarfile.open(fileobj=io.BytesIO(archive)) as tar,
    ):
        # Early versions of Python 3.11 have no filter for archives, and the method accepts no
        # argument for one.
        tar.extraction_filter = getattr(tarfile, "data_filter", None)
        tar.extractall(scratch)
        _copy(Path(scratch), target)


def _git(folder: Path, *words: str) -> bytes | None:
    """Returns the output of git; None if git fails or is not installed."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, check=False)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def _copy(source: Path, target: Path) -> None:
    """Copies the importable files of a folder: its modules and packages."""
    for path in (*source.glob("*.py"), *source.glob("*/*.py")):
        inside = target / path.relative_to(source)
        inside.parent.mkdir(exist_ok=True)
        shutil.copyfile(path, inside)


def _neither(given: str, detail: str) -> InputError:
    return InputError(
        f'"{given}" is neither a file nor a revision',
        detail=detail,
        hint="Use the file of the changed application, or a Git revision such as HEAD~1.",
    )
