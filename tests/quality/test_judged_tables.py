"""A verdict is bound to what was judged: the tables at the versions at which the gate began."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from deltalake import write_deltalake

from rewindow.errors import TableError
from rewindow.progress.listener import Lines
from rewindow.quality import check, gate
from rewindow.storage import Table, query
from rewindow.storage.layout import Contents, staged_contents
from tests.quality.staging import StagedReplay, ended


def test_verdict_records_the_table_versions_at_the_start_of_the_gate(staged: StagedReplay) -> None:
    ledger = ended(staged)
    root = staged.config.replay_root(staged.replay_id)
    before = staged_contents(root)
    assert (
        check(staged.config, staged.replay_id).tables
        == before
        == ledger.checks.newest(staged.replay_id)[0].tables
    )
    rows = Table.open(root / staged.output).delta

    def alter(line: str) -> None:
        if ": passed" in line:
            rows.delete("window_id = 101")

    result = check(staged.config, staged.replay_id, Lines(alter))
    assert result.verdict == "passed" and staged_contents(root) != before
    assert ledger.checks.newest(staged.replay_id)[0].tables == before


def test_gate_reads_the_table_versions_recorded_in_its_verdict(
    staged: StagedReplay,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended(staged)
    root = staged.config.replay_root(staged.replay_id)
    look = gate.staged_contents

    def look_then_alter(folder: Path) -> Contents:
        contents = look(folder)
        Table.open(root / staged.output).delta.delete("window_id = 101")
        return contents

    monkeypatch.setattr(gate, "staged_contents", look_then_alter)
    assert check(staged.config, staged.replay_id).verdict == "passed"
    monkeypatch.undo()
    assert check(staged.config, staged.replay_id).verdict == "failed"


def test_gate_fails_on_a_flipped_count_in_a_seal_of_an_input(staged: StagedReplay) -> None:
    ended(staged)
    path = staged.config.windows_table("flights")
    altered = query(
        "select * replace (case window_id when 103 then 7 else tuples end as tuples) from w",
        w=path,
    )
    shutil.rmtree(path)
    write_deltalake(str(path), altered)
    with pytest.raises(TableError, match='seal of window 103 of stream "flights" is damaged'):
        check(staged.config, staged.replay_id)
