"""A start state that another version of an operator has saved, made into one of this version. No
JVM.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from rewindow.errors import CheckpointError
from rewindow.planning import create_replay, draft_plan
from rewindow.settings.config import Config
from rewindow.state import checkpoints as stored
from rewindow.state.files import read_rows
from rewindow.state.sizes import state_sizes
from rewindow.storage import Table
from rewindow.storage.layout import CHECKPOINTS, app_id
from tests.planning.options import request
from tests.recovery.project import FIRST, Project

OLD = "state_schema: ClassVar = TOTALS\n"
NEW = """state_schema: ClassVar = pa.schema([*TOTALS, ("since", pa.int32())])
    state_version: ClassVar = 2

    def migrate_state(self, version, rows):
        {}
"""
AT = FIRST + 4


def changed(project: Project, body: str, inline_bytes: int = 1 << 20) -> Config:
    """A checkpoint of the old version at a window, and settings in which the operator is of the new
    one.
    """
    plan = create_replay(project.config, request(replay_id="one"))
    rows = pa.table({"key": ["a", "b"], "total": pa.array([3, 5], pa.int64())})
    saved = stored.encode(AT, 5, {"totals": rows}, {"totals": 1}, stored.Provenance.of(plan, 1))
    table = Table.open(project.config.replay_root("one") / CHECKPOINTS)
    table.commit_arrow(saved, app_id=app_id("one", CHECKPOINTS), version=5)
    source = (project.config.applications[0] / "totals.py").read_text()
    assert OLD in source
    folder = project.config.root / "changed"
    folder.mkdir()
    (folder / "totals.py").write_text(source.replace(OLD, NEW.format(body)))
    replay = project.config.replay.model_copy(update={"inline_state_bytes": inline_bytes})
    config = project.config.model_copy(update={"applications": [folder], "replay": replay})
    config._root = project.config.root
    config._file = project.config.file
    return config


WISHES = {"first": AT + 1, "state_from": "one", "allow_other_code": True}


@pytest.mark.parametrize("inline_bytes", [0, 1 << 20])
def test_operator_migrates_a_start_state_of_another_version(
    project: Project,
    inline_bytes: int,
) -> None:
    added = 'return rows.append_column("since", pa.array([version] * rows.num_rows, pa.int32()))'
    config = changed(project, added, inline_bytes)
    plan = create_replay(config, request(replay_id="two", **WISHES))
    table = Table.open(config.replay_root("two") / CHECKPOINTS)
    state = stored.load(table, 0).states["totals"]
    assert sorted(map(tuple, (row.values() for row in read_rows(state).to_pylist()))) == [
        ("a", 3, 1),
        ("b", 5, 1),
    ]
    [row] = stored.rows_at(table, AT).to_pylist()
    assert (row["schema_version"], bool(row["files"]), plan.start.window) == (
        2,
        not inline_bytes,
        AT,
    )
    [size] = state_sizes(table, 0)
    assert (size.operator, size.rows) == ("totals", 2) and size.bytes > 100
    old = stored.load(Table.open(config.replay_root("one") / CHECKPOINTS), 5).states["totals"]
    assert read_rows(old).column_names == ["key", "total"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            "return None",
            "has version 1 with key string, total int64, but the operator needs version 2",
        ),
        ("return rows", 'migrate_state of operator "totals" returned key string, total int64'),
        ("return 1 / 0", 'migrate_state of operator "totals" failed: ZeroDivisionError'),
    ],
)
def test_failed_state_migration_is_rejected_at_planning_and_creates_nothing(
    project: Project,
    body: str,
    words: str,
) -> None:
    # Rules: W65, X49
    with pytest.raises(CheckpointError, match=words):
        draft_plan(changed(project, body), request(**WISHES))
