"""Too many malformed rows stop a recording before it seals anything; what depends on nothing can be
started over.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from rewindow.errors import InputError, OverlapError
from rewindow.ledger import Ledger
from rewindow.recording import inventory, malformed
from rewindow.recording.arrival_counts import ArrivalCounts
from rewindow.settings.config import StreamConfig
from tests.recording.conftest import Bench
from tests.recording.test_record import ROWS

SWAPPED = "".join(f"a,{day}/02/1970,1\n" for day in range(10, 28))


class Died(Exception):
    pass


def rows_of(count: int, bad: int) -> ArrivalCounts:
    windows = pa.array([None, 1000], pa.int64())
    numbers = {name: [bad, count - bad] for name in ("tuples", "present", "newest")}
    return ArrivalCounts.of(pa.table({"window_id": windows, **numbers}))


@pytest.mark.parametrize(
    ("count", "bad", "share", "stops"),
    [
        (9, 9, 0.01, False), (10, 10, 0.01, True), (1000, 10, 0.01, False), (1000, 11, 0.01, True),
        (100, 9, 0.0, False), (100, 10, 0.0, True), (100, 100, 1.0, False), (100, 50, 0.5, False),
        (100, 51, 0.5, True),
    ],
)  # fmt: skip
def test_malformed_share_is_checked_only_for_at_least_ten_rows(
    count: int,
    bad: int,
    share: float,
    stops: bool,
) -> None:
    stream = StreamConfig(source="s", arrived_at="at", malformed_max_share=share)
    assert malformed.too_many(rows_of(count, bad), stream) is stops


@pytest.mark.parametrize(
    ("rows", "reason"),
    [(SWAPPED, "column at is not timestamp"), ("a,,1\n" * 12 + ROWS, "no arrival timestamp")],
)
def test_too_many_malformed_rows_prevent_sealing_and_stay_in_quarantine(
    bench: Bench,
    rows: str,
    reason: str,
) -> None:
    bench.write(rows)
    with pytest.raises(InputError) as caught:
        bench.record()
    said = str(caught.value)
    [line] = [line for line in said.splitlines() if reason in line]
    assert (
        line.startswith(f"    {18 if rows == SWAPPED else 12}: {reason}, such as ")
        and "s.csv:2" in line
    )
    assert ('"10/02/1970" in s.csv:2 and "27/02/1970" in s.csv:19' in line) is (rows == SWAPPED)
    assert "rewindow streams quarantine s" in said
    assert not bench.config().stream_table("s").exists()
    refused = inventory.quarantined(bench.config(), "s", 100)
    assert {row["reason"] for row in refused} == {f"refused: malformed: {reason}"}
    if rows == SWAPPED:
        bench.record(
            columns="k STRING, at STRING, n INT",
            arrived_at="to_timestamp(at, 'dd/MM/yyyy')",
            end=True,
        )
        assert (len(bench.tuples()), bench.aside()) == (18, [])
    else:
        assert bench.record(malformed_max_share=0.8).malformed == 12
        assert {row[1] for row in bench.aside()} == {f"malformed: {reason}"}


def test_later_run_with_too_many_malformed_rows_leaves_the_stream_unchanged(bench: Bench) -> None:
    bench.write(ROWS)
    bench.record(sealed_to="1970-01-01T02:46:50Z")
    before = bench.tuples()
    bench.write(ROWS + SWAPPED)
    with pytest.raises(InputError, match="too many malformed rows: 18 of 20"):
        bench.record()
    assert bench.tuples() == before


def test_stream_without_dependents_can_be_restarted_with_other_settings(bench: Bench) -> None:
    bench.write(ROWS + "a,1970-01-01T02:46:41Z,many\n")
    bench.record()
    result = bench.record(
        start_over=True,
        columns="k STRING, at TIMESTAMP, n STRING",
        width="20 s",
        sealed_to=None,
    )
    assert (result.first, result.recorded, result.malformed) == (500, 5, 0)
    assert bench.rows("select n from s where n = 'many'") == [{"n": "many"}]
    assert bench.aside() == []


def test_failed_stream_restart_keeps_the_existing_recording(bench: Bench) -> None:
    bench.write(ROWS + SWAPPED)
    bench.record(malformed_max_share=1)
    before = bench.tuples()
    with pytest.raises(InputError, match="malformed"):
        bench.record(start_over=True)
    assert bench.tuples() == before


def test_stream_read_by_a_replay_is_not_restarted(bench: Bench) -> None:
    bench.write(ROWS)
    bench.record()
    ledger = Ledger.open(bench.config().ledger_url)
    ledger.replays.create(
        "one",
        "app",
        1000,
        1001,
        "exactly_once",
        {"inputs": [{"stream": "s"}], "outputs": []},
        "v1",
    )
    with pytest.raises(OverlapError, match='still needed: replay "one"') as caught:
        bench.record(start_over=True)
    assert "--force" not in str(caught.value)
    assert len(bench.tuples()) == 5


@pytest.mark.parametrize(
    "point",
    [("remove_after_move", 1), ("remove_after_move", 2), ("remove_after_quarantine", 1)],
)
def test_interrupted_restart_is_completed_by_the_next_run(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    point: tuple[str, int],
) -> None:
    bench.write(ROWS + "a,1970-01-01T02:46:41Z,many\n")
    bench.record()

    def crash(step: str, number: int = 1, attempt: int | None = None) -> None:
        if (step, number) == point:
            raise Died

    settings = {"columns": "k STRING, at TIMESTAMP, n STRING"}
    with monkeypatch.context() as patch:
        patch.setattr(inventory, "crash_point", crash)
        with pytest.raises(Died):
            bench.record(start_over=True, **settings)
    assert bench.record(**settings).recorded == 6
    assert bench.aside() == []
    assert not [
        path.name
        for path in bench.config().stream_table("s").parent.iterdir()
        if path.name[0] == "."
    ]


def test_leftover_removal_folder_does_not_affect_restored_tables(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench.write(ROWS)
    bench.record()
    folder = bench.config().stream_table("s").parent
    (folder / ".s.deleted").mkdir()
    assert (bench.record().late, len(bench.tuples())) == (0, 5)
    assert not (folder / ".s.deleted").exists()


def test_quarantined_rows_show_column_and_value_in_file_order(bench: Bench) -> None:
    rows = ROWS.splitlines(keepends=True)
    bad = [
        f"{key},1970-01-01T02:46:5{n % 10}Z,{value}\n"
        for n, (key, value) in enumerate([("b", "x"), ("c", "n/a"), ("d", "1.5")])
    ]
    bench.write("".join([bad[0], *rows, *rows, bad[1], *rows, bad[2], "b,noon,1\n"]))
    result = bench.record(malformed_max_share=1.0)
    assert result.malformed == 4
    config = bench.config()
    assert inventory.quarantine_counts(config, "s") == {
        "malformed: column n is not int": 3,
        "malformed: column at is not timestamp": 1,
    }
    found = inventory.quarantined(config, "s", 10)
    assert [(row["problem"], row["position"]) for row in found] == [
        ("at: 'noon' is not a TIMESTAMP", "s.csv:20"),
        ("n: 'x' is not an INT", "s.csv:2"),
        ("n: 'n/a' is not an INT", "s.csv:13"),
        ("n: '1.5' is not an INT", "s.csv:19"),
    ]
