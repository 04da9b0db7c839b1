"""Partitions, round robin, unifiers, codecs and broadcast ports on the engine: results do not
depend on the number of partitions, and equal those of the test framework.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from rewindow.crash import Step
from rewindow.engine.attempt import Attempt
from rewindow.errors import InputError, RewindowError
from rewindow.facts.readers import read_output
from rewindow.ledger import Ledger
from rewindow.loading.catalog import load_application
from rewindow.planning.changing import change_log, set_property
from rewindow.settings.config import Config
from rewindow.state import checkpoints as stored
from rewindow.state.files import read_rows
from rewindow.storage import Table
from rewindow.storage.layout import CHECKPOINTS
from rewindow.testing import run_application
from rewindow.testing.partitions import java_hash
from rewindow.tuple_engine.partitions import java_hash_of
from tests.engine.conftest import Crash
from tests.recovery.project import EPOCH, FIRST, make_stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WINDOWS = 6
KEYS = ["a", "bb", "Zürich", "𝄞 clef", "", None, "the same", "x" * 40]
STREAM = pa.schema(
    [
        ("window_id", pa.int64()),
        ("offset", pa.int64()),
        ("arrived_at", pa.timestamp("us", "UTC")),
        ("word", pa.string()),
        ("n", pa.int64()),
    ]
)
NAMES = ("totals", "java", "limits", "mean", "top")


def words() -> dict[int, list[tuple[str | None, int]]]:
    found = {}
    for window in range(FIRST, FIRST + WINDOWS):
        rows = []
        for place in range(window * 5 % 9 + 3):
            rows.append((KEYS[(place * 5 + window) % len(KEYS)], (place * 31 + window * 17) % 23))
        found[window] = rows
    return found


def record(config: Config) -> None:
    rows = []
    for window, tuples in words().items():
        for offset, (word, n) in enumerate(tuples):
            rows.append(dict(zip(STREAM.names, (window, offset, EPOCH, word, n), strict=True)))
    seals = {window: len(tuples) for window, tuples in words().items()}
    table = pa.Table.from_pylist(rows, schema=STREAM)
    make_stream(config, "words", table, seals, width_ms=3_600_000)


def everywhere(count: int) -> dict[str, dict[str, Any]]:
    return {
        "totals": {"partitions": count, "partitioner": f"abs(hash(word)) % {count}"},
        "java": {"partitions": count, "partitioner": "apex"},
        "limits": {"partitions": count},
        "mean": {"spread": count},
        "top": {"spread": count},
    }


def results(attempt: Callable[..., Attempt], replay: str, **how: Any) -> dict[str, Any]:
    config: Config = attempt.config  # type: ignore[attr-defined]
    last = attempt("tuple_partitions", replay, group_windows=3, **how)
    last.run()
    root = config.replay_root(replay)
    found: dict[str, Any] = {}
    for name, output in last.app.outputs.items():
        columns = ["window_id", *last.app.columns(output).names]
        rows = read_output(root, name, last.plan.range).select(columns)
        found[name] = Counter(tuple(row.values()) for row in rows.to_pylist())
    states = stored.load(Table.open(root / CHECKPOINTS), len(last.plan.range)).states
    for name, state in states.items():
        found[f"state of {name}"] = sorted(map(repr, read_rows(state).to_pylist()))
    return found


LONG = pytest.mark.long


@pytest.mark.parametrize(
    ("counts", "inline"),
    [
        pytest.param((3,), 0, marks=LONG),
        pytest.param((8,), 1 << 20, marks=LONG),
        pytest.param((1, 2, 5), 1 << 20, marks=pytest.mark.exhaustive),
        pytest.param((1, 2, 5, 8), 0, marks=pytest.mark.exhaustive),
    ],
)
def test_engine_results_equal_framework_results_for_any_number_of_partitions(
    counts: tuple[int, ...],
    inline: int,
    attempt: Callable[..., Attempt],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Rules: X55, O79, O85 to O92, O101
    config: Config = attempt.config  # type: ignore[attr-defined]
    record(config)
    app = load_application(config, "tuple_partitions").app
    expected = results(attempt, "plain")
    framework = run_application(app, {"words": words()}, group_windows=2)  # type: ignore[arg-type]
    for name in NAMES:
        assert expected[name] == Counter(framework[name])
        assert expected[name]
    for count in counts:
        monkeypatch.setenv("PLACING", json.dumps(everywhere(count)))
        found = results(attempt, f"in_{count}", inline_state_bytes=inline)
        assert found == expected
    partial = len(framework.ports["mean.out"])
    assert partial <= WINDOWS


@pytest.mark.parametrize(
    ("partitioner", "message"),
    [
        ("n_of(word)", "n_of"),
        ("word", "returns string, not a whole number"),
        ("cast(rand() * 2 as int)", "is random"),
        ("2", 'returns 2 for the key {"word":"'),
        ("if(word is null, null, 0)", "returns null for the key {}"),
    ],
)
def test_wrong_partitioner_raises_an_error_that_names_the_key(
    partitioner: str,
    message: str,
    attempt: Callable[..., Attempt],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config: Config = attempt.config  # type: ignore[attr-defined]
    record(config)
    placing = {"totals": {"partitions": 2, "partitioner": partitioner}}
    monkeypatch.setenv("PLACING", json.dumps(placing))
    with pytest.raises(RewindowError) as raised:
        attempt("tuple_partitions", "wrong").run()
    assert message in str(raised.value)


def test_java_codec_equals_the_hash_code_in_java(spark: SparkSession) -> None:
    # Rules: O85
    texts = [*KEYS, "hello", "Aa", "BB"]
    numbers = [0, 1, -1, 7 << 33, -(1 << 63), (1 << 63) - 1, None]
    schema = pa.schema([("text", pa.string()), ("number", pa.int64())])
    rows = pa.table([texts, (numbers * 2)[: len(texts)]], schema=schema)
    frame = spark.createDataFrame(rows)
    columns = [java_hash_of(frame[field.name], field) for field in schema]
    found = frame.select(*columns).toArrow().to_pydict()
    by_column = list(found.values())
    assert by_column[0] == list(map(java_hash, texts))
    assert by_column[1] == list(map(java_hash, rows["number"].to_pylist()))
    objects = spark._jvm.java.util.Objects  # type: ignore[union-attr]
    assert by_column[0] == [objects.hashCode(text) if text is not None else 0 for text in texts]


@LONG
def test_number_of_partitions_can_change_in_the_middle_of_a_range(
    attempt: Callable[..., Attempt], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Rules: R98, R99, R101, O99
    config: Config = attempt.config  # type: ignore[attr-defined]
    record(config)
    expected = results(attempt, "plain")
    monkeypatch.setenv("PLACING", json.dumps(everywhere(3)))
    with pytest.raises(Crash):
        attempt("tuple_partitions", "one", (Step.AFTER_OUTPUTS, 1), group_windows=3).run()
    set_property(config, "one", "limits.partitions", 4, from_window=FIRST + 3)
    set_property(config, "one", "java.partitions", 2, from_window=FIRST + 4)
    set_property(config, "one", "mean.spread", 1, from_window=FIRST + 4)
    with pytest.raises(InputError, match="partitions must be at least 1"):
        set_property(config, "one", "limits.partitions", 0, from_window=FIRST + 5)
    with pytest.raises(InputError, match="planned without it"):
        set_property(config, "one", "rules.spread", 2, from_window=FIRST + 5)
    assert results(attempt, "one") == expected
    plan = Ledger.open(config.ledger_url).replays.get("one").read_plan()
    changes = change_log(config, plan).changes()
    assert [(one.path, one.value) for one in changes] == [
        ("limits.partitions", 4),
        ("java.partitions", 2),
        ("mean.spread", 1),
    ]
