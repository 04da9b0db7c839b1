"""An application without code, from its section in rewindow.toml to a published and certified
replay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from rewindow.certificate import certify
from rewindow.ledger import AttemptEnd, Ledger
from rewindow.publication.publish import publish
from rewindow.quality import check
from rewindow.settings.config import ApplicationConfig, Config
from rewindow.storage import Table, query
from tests.recovery.project import FIRST, WINDOWS

if TYPE_CHECKING:
    from rewindow.engine.attempt import Attempt

BUSIEST = {
    "window": "1 h",
    "operators": {
        "counts": {
            "operator": "Aggregate",
            "inputs": {"rows": "events"},
            "by": ["key"],
            "aggregates": {"events": "count(*)", "largest": "max(x)"},
            "application_windows": 8,
        },
        "top": {
            "operator": "TopN",
            "inputs": {"rows": "counts"},
            "by": ["events"],
            "top": 2,
            "rank": "rank",
        },
    },
    "outputs": {"top": {"source": "top", "key": ["rank"]}},
}


def test_application_without_code_is_replayed_published_and_certified(
    attempt: Callable[..., Attempt],
) -> None:
    # Rules: O113, O121, O128
    config: Config = attempt.config  # type: ignore[attr-defined]
    config.application_settings["busiest"] = ApplicationConfig.model_validate(BUSIEST)
    ledger = Ledger.open(config.ledger_url)
    attempt("busiest", "one", group_windows=12).run()
    ledger.attempts.end("one", 1, AttemptEnd.DONE)
    assert check(config, "one").verdict == "passed"
    publish(config, "one")

    certificate = certify(config, "one", "published", full=True)
    assert certificate.verdict == "equal"
    events = query("select window_id, key, x from e", e=Table.open(config.stream_table("events")))
    expected = []
    for last in range(FIRST + 7, FIRST + WINDOWS, 8):
        rows = [row for row in events.to_pylist() if last - 8 < row["window_id"] <= last]
        counts = Counter(row["key"] for row in rows)
        largest = {key: max(row["x"] for row in rows if row["key"] == key) for key in counts}
        order = sorted(counts, key=lambda key: (-counts[key], key))
        for rank, key in enumerate(order[:2], 1):
            expected.append((last, key, counts[key], largest[key], rank))
    table = Table.open(config.stream_table("busiest.top"))
    found = query("select window_id, key, events, largest, rank from t", t=table)
    assert sorted(zip(*found.to_pydict().values(), strict=True)) == sorted(expected)
