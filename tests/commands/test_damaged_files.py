"""A fuzzer: bytes of every kind of file that Rewindow writes are flipped, zeroed and cut at seeded
random places, and every command that reads the file then answers in words, or with the truth.

A failure prints its seed, and `SEED=n` in front of pytest's command replays it.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

import rewindow
from rewindow.launcher import read_outcome
from rewindow.settings.config import Config
from tests.commands.damaged_files import (
    KINDS,
    WRITES,
    Answer,
    build,
    call,
    complaint,
    contents,
    damage,
    damaged,
    files_of,
    no_spark,
)
from tests.operators.test_lateness import new_seed

CASES = int(os.environ.get("CASES", "4"))
CASES_LONG = 100
READERS = ("storage", "state", "ledger", "inspection", "json_files.py", "facts")
"""Rooms that read files: they convert classes of exceptions that they name."""
Read = Callable[[], tuple[str, str]]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """A project with every kind of file, which each command that writes gets a copy of."""
    return build(tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module")
def clean() -> dict[str, dict[str, list[str] | None]]:
    """Command to what the published tables hold after it, where nothing is damaged."""
    return {}


@pytest.fixture
def read(capfd: pytest.CaptureFixture[str]) -> Read:
    def text() -> tuple[str, str]:
        out, err = capfd.readouterr()
        return out, err

    return text


@pytest.mark.parametrize("kind", KINDS)
def test_every_command_reports_the_damaged_file_and_no_false_result(
    built: Config,
    clean: dict[str, dict[str, list[str] | None]],
    kind: str,
    tmp_path: Path,
    read: Read,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fuzz(built, clean, kind, CASES, tmp_path, read, monkeypatch)


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_every_command_reports_the_damaged_file_in_many_cases(
    built: Config,
    clean: dict[str, dict[str, list[str] | None]],
    kind: str,
    tmp_path: Path,
    read: Read,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fuzz(built, clean, kind, CASES_LONG, tmp_path, read, monkeypatch)


def fuzz(
    built: Config,
    clean: dict[str, dict[str, list[str] | None]],
    kind: str,
    cases: int,
    folder: Path,
    read: Read,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Damages files of a kind, one after the other, and judges the answers to a command each."""
    no_spark(monkeypatch)
    seed = int(os.environ.get("SEED", new_seed()))
    random = Random(f"{seed} {kind}")
    names = frozenset(path.name for path in Path(built.state).rglob("*") if path.is_file())
    wrong = []
    first = random.randrange(len(KINDS[kind].commands))
    for number in range(first, first + cases):
        original = random.choice(files_of(Path(built.state), KINDS[kind]))
        place = original.relative_to(built.state)
        command = KINDS[kind].commands[number % len(KINDS[kind].commands)]
        what, content = damage(random, original.read_bytes())
        root = copied(built, folder / str(number), monkeypatch, command, kind, read, clean)
        path = root / "state" / place
        with damaged(path, content):
            answer = call(command, read)
            found = complaint(
                answer,
                path,
                root / "state",
                names,
                lambda: agree(contents(root / "state", command), clean[command]),  # noqa: B023
            )
        if found:
            told = f"{found}\n  {answer.code} {answer.out[-200:]!r} {answer.err[:600]}"
            wrong.append(f"{command}: {place}: {what}: {told}")
        if root != built.root:
            shutil.rmtree(root)
    assert not wrong, f"seed {seed}, {len(wrong)} of {cases}:\n" + "\n".join(wrong)


def agree(found: dict[str, list[str] | None], wanted: dict[str, list[str] | None]) -> bool:
    """Returns whether all tables that can be read hold what they should: another one is damaged in
    windows that the claim is not about.
    """
    return all(found.get(name) in (None, rows) for name, rows in wanted.items())


def copied(
    built: Config,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    kind: str,
    read: Read,
    clean: dict[str, dict[str, list[str] | None]],
) -> Path:
    """Returns the folder in which a command runs, in force for it; the command has succeeded there
    on another copy without damage.
    """
    if command not in clean:
        trial = folder / "trial"
        shutil.copytree(built.root, trial)
        answer = run_in(trial, command, read, monkeypatch)
        assert answer.code == 0 and answer.raised is None, (command, answer)
        clean[command] = contents(trial / "state", command)
        shutil.rmtree(trial)
    root = Path(built.root)
    if command.startswith(WRITES) and not command.endswith("--dry-run"):
        root = folder / "copy"
        shutil.copytree(built.root, root)
        if command == "ledger rebuild" and kind != "ledger":
            forget_ledger(root)
    monkeypatch.setenv("REWINDOW_CONFIG", str(root / "rewindow.toml"))
    return root


def run_in(root: Path, command: str, read: Read, monkeypatch: pytest.MonkeyPatch) -> Answer:
    if command == "ledger rebuild":
        forget_ledger(root)
    monkeypatch.setenv("REWINDOW_CONFIG", str(root / "rewindow.toml"))
    return call(command, read)


def forget_ledger(root: Path) -> None:
    """Deletes the ledger, so that it can be rebuilt."""
    for file in (root / "state").glob("ledger.sqlite*"):
        if file.is_file():
            file.unlink()


OUTCOME = {
    "exit_code": 2,
    "message": "stream is unknown",
    "retryable": False,
    "kind": "InputError",
    "error": {"primary": "stream is unknown", "detail": "", "hint": "Record it."},
}


def test_damaged_outcome_file_of_a_failed_job_is_never_a_success(tmp_path: Path) -> None:
    seed = int(os.environ.get("SEED", new_seed()))
    random = Random(seed)
    path = tmp_path / "outcome-1.json"
    content = json.dumps(OUTCOME).encode()
    exit_code = content.index(b"2")
    damages = [damage(random, content) for _ in range(500)]
    for bit in range(8):
        flipped = bytearray(content)
        flipped[exit_code] ^= 1 << bit
        damages.append((f"bit {bit} of the exit code", bytes(flipped)))
    changed = content.replace(b": 2", b": 0").replace(b'"error"', b'"eRror"')
    damages.append(("exit code and name of the error", changed))
    for what, damaged_content in damages:
        path.write_bytes(damaged_content)
        assert read_outcome(path, 2).exit_code != 0, (seed, what)


def test_readers_catch_only_specific_exception_classes() -> None:
    package = Path(rewindow.__file__).parent
    files = [file for room in READERS for file in [*(package / room).rglob("*.py"), package / room]]
    broad = []
    for file in filter(Path.is_file, files):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ExceptHandler) and _is_broad(node.type):
                broad.append(f"{file.relative_to(package)}:{node.lineno}")
    assert broad == []


def _is_broad(kind: ast.expr | None) -> bool:
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(
        one is None or (isinstance(one, ast.Name) and one.id in ("Exception", "BaseException"))
        for one in kinds
    )
