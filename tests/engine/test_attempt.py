"""An attempt in this process: what it counts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rewindow.engine.attempt import Attempt
from rewindow.launcher import ReplayRequest, create_replay
from rewindow.ledger import Ledger
from rewindow.operators.catalog import load_application
from rewindow.tables import Table, query
from rewindow.tables.staging import FACTS
from tests.recovery.project import FIRST, WINDOWS, make_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_tuples_of_a_port_that_nothing_reads_are_counted(tmp_path: Path, spark: SparkSession) -> None:
    """Per window, also without any, in the facts and in the ledger; and somebody is told (O16)."""
    config = make_project(tmp_path).config
    plan = create_replay(config, ReplayRequest("rejects", replay_id="one", group_windows=10))
    ledger, root, said = Ledger.open(config.ledger_url), config.replay_root("one"), []
    app = load_application(config, "rejects", {}).app
    epoch = ledger.next_epoch("one")
    ledger.begin_attempt("one", epoch, host="h", pid=1, process_group=1, process_started_at=0.0)
    Attempt(plan, app, root, ledger, epoch, lambda: spark, say=said.append).run()

    facts = Table.open(root / FACTS)
    events = Table.open(config.stream_table("events"))
    odd = query("select window_id, count(*) as tuples from e where x % 2 <> 0 group by window_id", e=events)
    wanted = dict.fromkeys(range(FIRST, FIRST + WINDOWS), 0) | dict(zip(*odd.to_pydict().values(), strict=True))
    found = query("select window_id, tuples from f where direction = 'dropped' and port = 'split.odd'", f=facts)
    assert dict(zip(*found.to_pydict().values(), strict=True)) == wanted
    assert [(t.port, t.tuples) for t in ledger.totals("one") if t.direction == "dropped"] == [
        ("split.odd", sum(wanted.values()))
    ]
    assert ledger.index_is_whole("one")
    assert any("nothing reads port split.odd" in line for line in said)
