"""A state folder with every kind of file that Rewindow writes, seeded damages to one of them, and
the judgement of a command that reads it afterwards.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from rewindow.application.overrides import PropertyChange
from rewindow.certificate import certify
from rewindow.cli import main
from rewindow.errors import RewindowError
from rewindow.ledger import Ledger
from rewindow.pages.certificate_page import write_certificate
from rewindow.planning import create_replay
from rewindow.publication.publish import publish
from rewindow.quality import check
from rewindow.settings.config import Config
from rewindow.state.changes import ChangeLog
from rewindow.state.files import folder_of, write_rows
from rewindow.storage import Table
from rewindow.storage.results import replay_folder
from tests.planning.options import request
from tests.publication.staging import StagedReplay, rows_of, state_of
from tests.quality.staging import StagedReplay as JudgedReplay
from tests.quality.staging import ended, expectation
from tests.recovery.project import FIRST, make_project

FLIPS_MAX = 4
JUDGED = "made-100-119"


@dataclass(frozen=True)
class Kind:
    """Files of one kind, and the commands that read them.

    Attributes:
        files: patterns below the state folder.
        commands: those that read such a file.
    """

    files: tuple[str, ...]
    commands: tuple[str, ...]


RECORDED = ("plan totals", "gaps events", "streams", "streams show events", "status planned")
READING = ("why next 115", "status next", "list", "errors next", "state next", "streams")
PUBLISHING = (
    "publish next",
    "publish next --dry-run",
    "undo second",
    "undo second --dry-run",
    "certify published second",
    "ledger rebuild",
)
PUBLISHED = (*PUBLISHING, "streams show app.ranks", "purge", "repair", "list")
STAGED = (
    "publish next",
    "publish next --dry-run",
    "certify next again",
    "ledger rebuild",
    *READING,
)
KINDS = {
    "recorded log": Kind(("streams/events*/_delta_log/*",), RECORDED),
    "recorded tuples": Kind(("streams/events/*.parquet",), RECORDED),
    "recorded seals": Kind(("streams/events.windows/*.parquet",), RECORDED),
    "recorded files": Kind(("streams/events.files/*.parquet",), RECORDED),
    "published log": Kind(("streams/app.*/_delta_log/*",), PUBLISHED),
    "published tuples": Kind(
        ("streams/app.ranks/**/*.parquet", "streams/app.delays/**/*.parquet"),
        ("publish next", "undo second", "undo second --dry-run", "streams show app.ranks"),
    ),
    "published seals": Kind(("streams/app.*.windows/*.parquet",), PUBLISHED),
    "published files": Kind(("streams/app.*.files/*.parquet",), PUBLISHED),
    "published states": Kind(
        ("streams/app.checkpoints/*.parquet", "streams/app.checkpoints.state/**/*.parquet"),
        PUBLISHED,
    ),
    "staged log": Kind(("replays/next/*/_delta_log/*",), STAGED),
    "staged tuples": Kind(
        ("replays/next/ranks/**/*.parquet", "replays/next/delays/**/*.parquet"),
        ("publish next", "publish next --dry-run"),
    ),
    "facts": Kind(("replays/next/facts/*.parquet",), STAGED),
    "checkpoints": Kind(("replays/next/checkpoints/*.parquet",), STAGED),
    "states": Kind(("replays/next/checkpoints.state/**/*.parquet",), STAGED),
    "judged tables": Kind(
        (f"replays/{JUDGED}/*/*.parquet", f"replays/{JUDGED}/*/_delta_log/*"),
        (f"check {JUDGED}",),
    ),
    "ledger": Kind(
        ("ledger.sqlite",),
        ("publish next", "undo second", "ledger rebuild", "status next", "list", "why next 115"),
    ),
    "results": Kind(
        ("results/certificates/*.json",),
        ("status second --page",),
    ),
    "gate results": Kind(("results/quality/replays/*/result.json",), ("status second --page",)),
    "findings": Kind(
        ("results/quality/findings/*.parquet", "results/quality/findings/_delta_log/*"),
        (f"why {JUDGED} 105",),
    ),
    "quarantine": Kind(
        ("streams/quarantine/*.parquet", "streams/quarantine/_delta_log/*"),
        ("streams", f"check {JUDGED}", f"why {JUDGED} 105"),
    ),
    "property changes": Kind(("replays/planned/changes/*.json",), ("set planned",)),
}
NO_SPARK = "Spark would be started"
WRITES = ("publish", "undo", "ledger rebuild", "check", "status")


class SparkStarted(RewindowError):
    """A command would read rows again with Spark: it believes nothing, and proves nothing."""


def build(root: Path) -> Config:
    """Creates a project: a recorded stream, a planned replay, two published ones, two that may be
    published, and one that the gate has judged.
    """
    config = make_project(root).config
    create_replay(config, request(replay_id="planned"))
    change = PropertyChange(
        operator="totals",
        name="factor",
        value=1,
        from_window=FIRST + 9,
        at=datetime(2026, 1, 1, tzinfo=UTC),
        by="somebody",
    )
    ChangeLog(config.replay_root("planned")).add(lambda begun: change)
    for name, plus in (("first", 0), ("second", 7)):
        stage(config, name, 100, plus)
        publish(config, name)
    for name in ("next", "again"):
        stage(config, name, 110, 0)
    write_certificate(config, certify(config, "published", "second"))
    for path in ("streams/app.ranks", "streams/app.delays.windows", "replays/next/facts"):
        Table.open(config.state / path).delta.create_checkpoint()
    judged = JudgedReplay(root)
    # The gate reads values of the rows only for measures.
    judged.add_suite(
        "summed",
        expectation("flown", "expect_column_values_to_be_between", column="flown", min_value=0),
        measures={"flown": {"sql": "sum(flights)", "empty": 0}},
    )
    judged.quarantine.append({"window_id": 109, "source": "flights", "reason": "late"})
    ended(judged)
    check(config, JUDGED)
    results = replay_folder(config, "second") / "result.json"
    results.write((replay_folder(config, JUDGED) / "result.json").read_bytes())
    Ledger.open(config.ledger_url).close()
    return config


def stage(config: Config, name: str, first: int, plus: int) -> None:
    """Stages ten windows, with the state at their end in files, as if the gate had passed them."""
    replay = StagedReplay(config, name, first, first + 9, inputs=(("flights", 0),))
    folder = folder_of(replay.root / "checkpoints")
    half = first + 4
    replay.group(first, half, rows_of(range(first, half + 1), plus), state=state_of(half + plus))
    place = f"1-{first + 9}/ranks_operator/state"
    state: Any = write_rows(state_of(first + 9 + plus), folder, place, ("carrier",), 2)
    replay.group(half + 1, first + 9, rows_of(range(half + 1, first + 10), plus), state=state)
    replay.digest().end()


def damage(random: Random, content: bytes) -> tuple[str, bytes]:
    """Returns what was done to the bytes of a file, and the damaged bytes."""
    changed = bytearray(content)
    way = random.choice(("bits", "bits", "bytes", "zeros", "cut"))
    if way == "cut":
        end = random.randrange(len(content))
        return f"cut at byte {end} of {len(content)}", content[:end]
    places = []
    for _ in range(random.randint(1, FLIPS_MAX)):
        place = random.randrange(len(content))
        places.append(place)
        if way == "bits":
            changed[place] ^= 1 << random.randrange(8)
        elif way == "bytes":
            changed[place] ^= random.randint(1, 255)
        else:
            changed[place : place + 16] = bytes(len(changed[place : place + 16]))
    return f"{way} at {places} of {len(content)}", bytes(changed)


def files_of(state: Path, kind: Kind) -> list[Path]:
    """Returns the files of a kind, sorted: those of two runs with one seed are the same."""
    found: list[Path] = []
    for pattern in kind.files:
        found += sorted(path for path in state.glob(pattern) if path.is_file())
    return [path for path in found if path.stat().st_size]


@contextmanager
def damaged(path: Path, content: bytes) -> Iterator[None]:
    """Changes a file in place, as a disk does: its time stays."""
    before, times = path.read_bytes(), path.stat()
    path.write_bytes(content)
    _set_time(path, times.st_mtime_ns)
    try:
        yield
    finally:
        path.write_bytes(before)
        _set_time(path, times.st_mtime_ns)


def _set_time(path: Path, ns: int) -> None:
    os.utime(path, ns=(ns, ns))


CLAIMS = {"publish": "published", "undo": "undone", "certify": "equal", "check": "passed"}


CLAIMED = {
    "publish next": (110, 119),
    "undo second": (100, 109),
    "certify published second": (100, 109),
    "certify next again": (110, 119),
    f"check {JUDGED}": (100, 119),
}
"""Command to the range of windows that its claim is about."""


@dataclass(frozen=True)
class Answer:
    """A command's answer: its exit code, or the exception that it let out, and its text."""

    command: str
    code: int
    raised: BaseException | None
    out: str
    err: str

    @property
    def proves(self) -> str:
        """The claim that it makes, empty without any."""
        claim = CLAIMS.get(self.command.partition(" ")[0], "")
        return claim if claim in self.out and "--dry-run" not in self.command else ""


def call(command: str, read: Callable[[], tuple[str, str]]) -> Answer:
    """Runs a command in this process."""
    raised: BaseException | None = None
    code = 0
    try:
        main(command.split())
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    except BaseException as error:  # noqa: BLE001  (whatever it is, it is a traceback for a user)
        raised = error
    out, err = read()
    return Answer(command, code, raised, out, err)


def contents(state: Path, command: str) -> dict[str, list[str] | None]:
    """Returns the rows of every table that the claim of a command is about, as delta-rs reads them;
    None: it cannot.
    """
    if command not in CLAIMED:
        return {}
    # A certificate compares no states, and the gate's claim is about outputs.
    tables = [*(state / "streams").glob("app.[rd]*"), *(state / "replays" / JUDGED).iterdir()]
    tables += [state / "replays" / name / "facts" for name in ("next", "again")]
    logs = (path for path in tables if (path / "_delta_log").is_dir())
    return {str(path.relative_to(state)): rows_in(path, *CLAIMED[command]) for path in logs}


def rows_in(path: Path, first: int, last: int) -> list[str] | None:
    try:
        table = DeltaTable(str(path))
        kept = [column.name for column in table.schema().fields if column.name in COMPARED]
        rows = table.to_pyarrow_table(columns=kept)
        rows = rows.filter(pc.is_in(rows["window_id"], pa.array(range(first, last + 1))))
        return sorted(map(repr, rows.to_pylist()))
    except BaseException:  # noqa: BLE001  (a damaged table may fail in any way, here in the oracle)
        return None


COMPARED = {
    *("window_id", "origin", "flights", "delay", "carrier", "minutes", "share", "is_timer"),
    *("tuples", "digest", "port", "lost"),
}
"""Columns that two publications of the same rows have alike."""


EITHER = ("do not match the checksum in table", "or the seals in", "or the log that describes it")
"""Words of errors that name two files of which one is damaged: a file and the note of its checksum,
a log and the seals that name its versions.
"""


def complaint(
    answer: Answer,
    path: Path,
    state: Path,
    names: frozenset[str],
    same: Callable[[], bool],
) -> str:
    """Returns what is wrong with an answer, empty where nothing is.

    Args:
        answer: to a command after a file was damaged.
        path: the damaged file.
        state: the state folder.
        names: of all files in it.
        same: returns whether what the answer claims is true.
    """
    if isinstance(answer.raised, SparkStarted) or NO_SPARK in answer.err:
        return ""
    if answer.raised is not None:
        return f"traceback: {type(answer.raised).__name__}: {answer.raised}"
    if answer.code == 0:
        return f'wrong "{answer.proves}"' if answer.proves and not same() else ""
    if answer.code == 1 and "different" in answer.out:
        return ""
    if not re.search("^error: ", answer.err, re.MULTILINE):
        return f"no error in words: {answer.err[-300:]!r}"
    if "Traceback" in answer.err:
        return "a traceback in the error"
    if "Hint:" not in answer.err:
        return "no next step"
    subject = any(word in answer.err for word in subjects(path, state))
    named = set(re.findall(r"[\w.-]+\.(?:parquet|json|sqlite)\b", answer.err)) & names
    if named - {path.name} and not (subject and any(word in answer.err for word in EITHER)):
        return f"names another file: {sorted(named - {path.name})}"
    # SQLite has no checksums, so it reports neither another text in a cell nor a row that an index
    # lacks.
    if not subject and path.name != "ledger.sqlite":
        return "names neither the file nor its table"
    return ""


def subjects(path: Path, state: Path) -> set[str]:
    """Returns what an error may call a damaged file by: its name, its table, its replay."""
    parts = Path(path).relative_to(Path(state)).parts
    folder = path.parent.parent if path.parent.name == "_delta_log" else path.parent
    found = {path.name, str(folder), f'"{folder.name}"'}
    if parts[0] in ("streams", "replays"):
        table = parts[1] if parts[0] == "streams" else parts[2]
        found.add(f'"{table.removesuffix(".state")}"')
        found.add(f'stream "{table.removesuffix(".windows").removesuffix(".files")}"')
        found.add(f'replay "{parts[1]}"')
        found.add(f'"{table.partition(".")[2]}"' if "." in table else path.name)
    return found


def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends a command that would start Spark."""

    def start(*arguments: Any, **named: Any) -> Any:
        raise SparkStarted(NO_SPARK)

    monkeypatch.setattr("rewindow.spark.session.spark_session", start)
    monkeypatch.setattr("rewindow.launcher.verbs.run_plain", start)
