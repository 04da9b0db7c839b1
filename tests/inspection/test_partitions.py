"""How evenly tuples were divided between partitions."""

from __future__ import annotations

from pathlib import Path

from rewindow.inspection.partitions import OperatorPartitions, partitions_of
from rewindow.ledger import Ledger
from rewindow.settings.config import Config
from tests.inspection.test_processing_times import timed_replay


def test_partition_counts_are_summed_and_a_large_unifier_is_reported(
    tmp_path: Path,
) -> None:
    # Rules: O83
    config = Config(state=tmp_path / "state")
    partitions = {
        "totals": ([(0, 30, 1.5), (1, 10, 0.5)], 5),
        "mean.out.unifier": ([(0, 4, 0.1)], 6),
    }
    timed_replay(config, 1.0, partitions=partitions)
    timed_replay(config, 1.0, "other")
    book = Ledger.open(config.ledger_url)
    assert partitions_of(book, book.replays.get("other")) == []
    unifier, totals = partitions_of(book, book.replays.get("one"))
    assert totals == OperatorPartitions("totals", 2, 80, 0.75, 4.0, 3.0, "")
    assert unifier.advice.startswith("mean.out.unifier emits 12 tuples, more than one of its")
    assert [timing.timings for timing in book.attempts.timings("one", 2)] == [
        {"compute": 1.0, "commit": 0.5}
    ] * 2
