"""Certificates: by digests without reading data, then row by row, against a naive formulation."""

from __future__ import annotations

import hashlib
import json
import math
import re
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rewindow.application import Mode
from rewindow.certificate.certificate import (
    DIFFERENT,
    EQUAL,
    EQUAL_WITHIN_TOLERANCE,
    NOT_VERIFIABLE,
    Certificate,
    certificate_digest,
    certify,
    seals_digest,
)
from rewindow.certificate.description import Description, StartDescription
from rewindow.errors import InputError, RangeError
from rewindow.facts.losses import skipped_marks
from rewindow.pages.certificate_page import certificate_page, write_certificate
from rewindow.settings.config import Config
from rewindow.windows import WindowRange
from tests.publication import staging
from tests.publication.staging import Row, StagedReplay, rows_of, simple, state_of


def output(certificate: Certificate, name: str) -> object:
    return next(found for found in certificate.outputs if found.name == name)


@given(
    st.lists(
        st.tuples(st.integers(-(2**63), 2**63 - 1), st.none() | st.text(max_size=4)),
        max_size=8,
    ),
    st.integers(1, 3),
)
def test_digest_of_seals_does_not_depend_on_chunking(rows: list[tuple], chunk: int) -> None:
    whole = pa.table(
        {
            "n": pa.array([0, *(n for n, _ in rows)], pa.int64()),
            "s": pa.array(["x", *(s for _, s in rows)]),
        }
    )
    table = pa.Table.from_batches(whole.to_batches(max_chunksize=chunk), whole.schema).slice(1)
    texts = ["null" if text is None else text for _, text in rows]
    lengths = [len(text.encode()).to_bytes(4, "little") for text in texts]
    naive = (
        b"".join([*(n.to_bytes(8, "little", signed=True) for n, _ in rows), *lengths])
        + "".join(texts).encode()
    )
    assert seals_digest(table) == hashlib.sha256(naive).hexdigest()[:32]


def test_replays_with_equal_digests_are_certified_without_reading_their_data(
    config: Config,
) -> None:
    # Rules: O137
    simple(config, "a", 100, 119)
    simple(config, "b", 100, 119)
    for name in ("delays", "ranks"):
        for file in (config.replay_root("b") / name).glob("**/*.parquet"):
            file.unlink()
    certificate = certify(config, "a", "b")
    assert (certificate.verdict, certificate.data_read) == (EQUAL, False)
    assert certificate.a.table_versions == certificate.b.table_versions
    assert output(certificate, "ranks").classes["equal"] == 20


def test_certificate_is_stored_as_json_and_as_a_self_contained_page(config: Config) -> None:
    simple(config, "a", 100, 119)
    simple(config, "b", 100, 119, plus=3)
    first, again = (write_certificate(config, certify(config, "a", "b")) for _ in range(2))
    assert first.digest == again.digest and first.path == again.path
    page = Path(first.page).read_text()
    assert not re.search(r'(src|href)="?http', page) and "color-scheme:light dark" in page
    assert "first difference" in page.lower() and "minutes" in page
    content = json.loads(Path(first.path).read_text())
    assert (
        content["digest"]
        == certificate_digest(content)
        != certificate_digest({**content, "verdict": EQUAL})
    )


def test_changes_are_summarized_per_column_for_rows_matched_by_key(config: Config) -> None:
    simple(config, "a", 100, 119)
    fixed = rows_of(range(100, 120))
    fixed["ranks"][105][0]["minutes"] += 7
    fixed["ranks"][110][1]["minutes"] -= 2
    fixed["ranks"][111].pop()
    fixed["ranks"][112].append({"carrier": "ZZ", "minutes": 1, "share": 0.5})
    StagedReplay(config, "b", 100, 119).group(100, 119, fixed, state=state_of(0)).end(ledger=False)
    certificate = certify(config, "a", "b")
    ranks = output(certificate, "ranks")
    assert ranks.changes == {"minutes": {"rows": 2, "smallest": -2.0, "largest": 7.0, "total": 5.0}}
    assert (ranks.rows_changed, ranks.rows_added, ranks.rows_removed) == (2, 1, 1)
    assert ranks.only_in_tuples.changed == 2
    assert ranks.ranges == {"lost": [(111, 111)], "changed": [(105, 105), (110, 110), (112, 112)]}
    assert output(certificate, "delays").classes["equal"] == 20
    assert certificate.verdict == DIFFERENT


def test_report_starts_with_the_first_window_and_first_output_of_the_plan(
    config: Config,
) -> None:
    # Rules: O140
    simple(config, "a", 100, 119)
    rows = rows_of(range(100, 120))
    rows["ranks"][103][0]["minutes"] = -1
    rows["delays"][103][0]["flights"] = -1
    rows["ranks"][109][0]["minutes"] = -1
    StagedReplay(config, "b", 100, 119).group(100, 119, rows, state=state_of(0)).end(ledger=False)
    first = certify(config, "a", "b").first_difference
    assert first is not None
    assert (first["window"], first["output"]) == (103, "delays")
    assert [row["flights"] for row in first["rows_a"]] == [103] and [
        row["flights"] for row in first["rows_b"]
    ] == [-1]


def test_first_difference_shows_at_most_twenty_rows_per_side(config: Config) -> None:
    # Rules: O140
    def carriers(minutes: int) -> dict[str, dict[int, list[Row]]]:
        rows = rows_of(range(100, 120))
        rows["ranks"][103] = [
            {"carrier": f"{number:02}", "minutes": minutes, "share": 0.5} for number in range(25)
        ]
        return rows

    for name, minutes in (("a", 1), ("b", 2)):
        replay = StagedReplay(config, name, 100, 119)
        replay.group(100, 119, carriers(minutes), state=state_of(0)).end(ledger=False)
    first = certify(config, "a", "b").first_difference
    assert first is not None
    twenty = [f"{number:02}" for number in range(20)]
    assert [row["carrier"] for row in first["rows_a"]] == twenty
    assert [row["carrier"] for row in first["rows_b"]] == twenty


def test_windows_missing_on_one_side_are_differences(config: Config) -> None:
    # Rules: O139
    simple(config, "a", 100, 119)
    simple(config, "b", 100, 115)
    assert output(certify(config, "a", "b"), "ranks").only_in == {"a": [(116, 119)]}
    assert output(certify(config, "a", "b"), "ranks").classes["lost"] == 4
    assert output(certify(config, "b", "a"), "ranks").only_in == {"b": [(116, 119)]}
    assert certify(config, "b", "a").verdict == DIFFERENT
    assert certify(config, "a", "b", windows=WindowRange(100, 115)).verdict == EQUAL


def half_run(config: Config, replay_id: str, last: int) -> None:
    """Stages a replay of windows 100 to 119 that has stopped after a window."""
    replay = StagedReplay(config, replay_id, 100, 119)
    replay.group(100, last, rows_of(range(100, last + 1)), state=state_of(0))
    replay.last = last
    replay.end(ledger=False)


def test_windows_missing_on_both_sides_are_differences(config: Config) -> None:
    half_run(config, "a", 109)
    half_run(config, "b", 109)
    certificate = certify(config, "a", "b")
    ranks = output(certificate, "ranks")
    assert (certificate.verdict, ranks.windows, ranks.classes["equal"]) == (DIFFERENT, 20, 10)
    assert (ranks.ranges, ranks.only_in, ranks.lost_tuples) == ({"lost": [(110, 119)]}, {}, 0)
    assert (
        certificate.first_difference is not None and certificate.first_difference["window"] == 110
    )
    assert 'Neither side has the windows [110, 119] of output "ranks".' in certificate.notes
    assert (certificate.contents, "published" in certificate.contents_words) == ("not read", False)
    assert "Neither side has the windows [110, 119]" in certificate_page(certificate)
    assert certify(config, "a", "b", raw=True).verdict == DIFFERENT
    assert certify(config, "a", "b", windows=WindowRange(100, 109)).verdict == EQUAL
    simple(config, "longer", 100, 124)
    ranks = output(certify(config, "a", "longer"), "ranks")
    assert (ranks.ranges, ranks.windows) == ({"changed": [(110, 124)]}, 25)


def test_windows_lost_on_both_sides_are_differences(config: Config) -> None:
    # Losing the same windows twice does not prove that they are equal.
    at_most_once(config, wrong=0)
    for raw in (False, True):
        certificate = certify(config, "once", "once", raw=raw)
        assert certificate.verdict == DIFFERENT
        assert output(certificate, "ranks").ranges == {"lost": [(110, 114)]}
        assert output(certificate, "delays").classes["equal"] == 20


def test_range_without_a_window_on_either_side_is_rejected(config: Config) -> None:
    for name in ("planned", "too"):
        StagedReplay(config, name, 100, 119)
    with pytest.raises(
        InputError,
        match=r"neither side has a sealed window in \[100, 119\]",
    ) as caught:
        certify(config, "planned", "too")
    assert (
        'Replay "planned" has not run.' in caught.value.detail
        and "rewindow status" in caught.value.hint
    )
    half_run(config, "a", 109)
    half_run(config, "b", 109)
    with pytest.raises(InputError, match="neither side has a sealed window") as caught:
        certify(config, "a", "b", windows=WindowRange(110, 119))
    assert 'Replay "a" has committed its first 10 windows.' in caught.value.detail
    assert certify(config, "a", "planned").verdict == DIFFERENT


def test_purged_replay_can_still_be_certified_by_its_digests(config: Config) -> None:
    simple(config, "a", 100, 119)
    simple(config, "b", 100, 119)
    simple(config, "c", 100, 119, plus=1)
    for name in ("delays", "ranks", "checkpoints"):
        shutil.rmtree(config.replay_root("b") / name)
        shutil.rmtree(config.replay_root("c") / name)
    assert certify(config, "a", "b").verdict == EQUAL
    certificate = certify(config, "a", "c")
    assert output(certificate, "ranks").classes["changed"] == 20 and not certificate.data_read
    assert any("were purged" in note for note in certificate.notes)


def test_empty_window_differs_from_a_missing_window(config: Config) -> None:
    # Window 104 of delays is empty in a (sealed with no tuple) and not sealed in b.
    simple(config, "a", 100, 107)
    b = StagedReplay(config, "b", 100, 107)
    rows = rows_of(range(100, 108))
    b.group(100, 107, {"ranks": rows["ranks"]}, state=state_of(0))
    b.write("delays", 100, 107, rows["delays"], 1)
    b.seal("delays", {w: rows["delays"][w] for w in range(100, 108) if w != 104}, 1)
    b.end(ledger=False)
    delays = output(certify(config, "a", "b"), "delays")
    assert delays.ranges == {"lost": [(104, 104)]} and delays.lost_tuples == 0


def test_only_floats_are_compared_within_the_tolerance(config: Config) -> None:
    simple(config, "a", 100, 119)
    rows = rows_of(range(100, 120))
    for window in rows["ranks"].values():
        window[0]["share"] *= 1 + 1e-12
    StagedReplay(config, "b", 100, 119).group(100, 119, rows, state=state_of(0)).end(ledger=False)
    certificate = certify(config, "a", "b")
    assert (
        certificate.verdict == EQUAL_WITHIN_TOLERANCE
        and certificate.equal
        and certificate.data_read
    )
    assert output(certificate, "ranks").equal_within_tolerance == 20
    assert certify(config, "a", "b", tolerance=0.0).verdict == DIFFERENT


@pytest.mark.parametrize("factor", [1 + 1e-12, 1.1])
def test_floats_in_arrays_are_also_compared_within_the_tolerance(
    factor: float,
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schema = staging.OUTPUTS["ranks"].append(pa.field("shares", pa.list_(pa.float64())))
    monkeypatch.setitem(staging.OUTPUTS, "ranks", schema)
    for name, times in (("a", 1.0), ("b", factor)):
        rows = rows_of(range(100, 104))
        for window in rows["ranks"].values():
            window[:] = [
                {**row, "share": row["share"] * times, "shares": [place * times, 1.0]}
                for place, row in enumerate((window * 2)[:2])
            ]
        StagedReplay(config, name, 100, 103).group(100, 103, rows, state=state_of(0)).end(
            ledger=False
        )
    found = output(certify(config, "a", "b"), "ranks")
    if factor < 1.1:
        assert found.equal_within_tolerance == 4 and not found.ranges
    else:
        assert found.ranges == {"changed": [(100, 103)]}


def test_nan_equals_only_nan(config: Config) -> None:
    simple(config, "a", 100, 107)
    rows = rows_of(range(100, 108))
    for window, value in ((102, math.nan), (104, math.inf), (106, -math.inf)):
        rows["ranks"][window][0]["share"] = value
    for name in ("b", "c"):
        StagedReplay(config, name, 100, 107).group(100, 107, rows, state=state_of(0)).end(
            ledger=False
        )
    for tolerance in (None, 0.0, 1.0):
        for sides in (("a", "b"), ("b", "a")):
            found = output(certify(config, *sides, tolerance=tolerance), "ranks")
            assert found.ranges == {"changed": [(102, 102), (104, 104), (106, 106)]}
        assert certify(config, "b", "c", tolerance=tolerance).verdict == EQUAL


def test_tolerance_of_the_reference_replay_is_used(config: Config) -> None:
    # Rules: R85
    # A candidate cannot pass by declaring a larger tolerance.
    rows = rows_of(range(100, 104))
    rows["ranks"][102][0]["share"] *= 1.001
    StagedReplay(config, "a", 100, 103, tolerance=1e-9).group(
        100,
        103,
        rows_of(range(100, 104)),
        state=state_of(0),
    ).end()
    StagedReplay(config, "b", 100, 103, tolerance=0.1).group(
        100,
        103,
        rows,
        state=state_of(0),
    ).end()
    assert certify(config, "a", "b").verdict == DIFFERENT
    assert certify(config, "b", "a").verdict == EQUAL_WITHIN_TOLERANCE


def test_table_altered_after_sealing_fails_certification(config: Config) -> None:
    simple(config, "a", 100, 103)
    b = StagedReplay(config, "b", 100, 103, digests=lambda output, schema, rows: ("another", None))
    b.group(100, 103, rows_of(range(100, 104)), state=state_of(0)).end(ledger=False)
    assert output(certify(config, "a", "b"), "delays").classes["changed"] == 4


def at_least_once(config: Config) -> None:
    """Attempt 1 reaches window 114 with its last checkpoint at 109, attempt 2 computes 110 to 119
    again.
    """
    replay = StagedReplay(config, "twice", 100, 119, mode=Mode.AT_LEAST_ONCE)
    replay.group(100, 109, rows_of(range(100, 110)), 1, state=state_of(1))
    replay.group(110, 114, rows_of(range(110, 115)), 1)
    replay.write("ranks", 115, 116, rows_of(range(115, 117))["ranks"], 1)
    replay.group(110, 119, rows_of(range(110, 120)), 2, state=state_of(2))
    replay.end(epoch=2, ledger=False)


def test_at_least_once_repeats_appear_only_in_raw_rows_after_the_checkpoint(config: Config) -> None:
    # Rules: R51
    simple(config, "a", 100, 119)
    at_least_once(config)
    assert certify(config, "a", "twice").verdict == EQUAL
    raw = certify(config, "a", "twice", raw=True)
    assert output(raw, "ranks").ranges == {"repeated": [(110, 116)]}
    assert output(raw, "ranks").repeated_tuples == 14
    assert output(raw, "delays").ranges == {"repeated": [(110, 111), (113, 114)]}, (
        "window 112 is empty: nothing repeats"
    )
    assert raw.b.windows_sealed_again == 5


def at_most_once(config: Config, wrong: int) -> None:
    """Checkpoint at 104, attempt 1 begins 110..114 and dies with delays committed up to 114, ranks
    up to 109.
    """
    replay = StagedReplay(config, "once", 100, 119, mode=Mode.AT_MOST_ONCE)
    replay.group(100, 104, rows_of(range(100, 105)), 1, state=state_of(1))
    replay.group(105, 109, rows_of(range(105, 110)), 1)
    replay.group(110, 114, {"delays": rows_of(range(110, 115))["delays"]}, 1)
    replay.lose(110, 114, ["ranks"], 2)
    after = rows_of(range(115, 120), plus=wrong)
    after["delays"] = rows_of(range(115, 120))["delays"]
    replay.group(115, 119, after, 2, state=state_of(2))
    replay.end(epoch=2, ledger=False)


def test_at_most_once_losses_affect_later_windows_of_stateful_outputs(
    config: Config,
) -> None:
    # Rules: R14
    simple(config, "a", 100, 119)
    at_most_once(config, wrong=-5)
    certificate = certify(config, "a", "once")
    ranks = output(certificate, "ranks")
    assert ranks.ranges == {"lost": [(110, 114)], "affected": [(115, 119)]}
    assert (ranks.lost_tuples, ranks.affected_from) == (10, 115)
    assert (
        output(certificate, "delays").classes["equal"] == 20
        and output(certificate, "delays").affected_from is None
    )
    assert any("lacks the windows [105, 114]" in note for note in certificate.notes)


def test_affected_range_covers_the_gap_from_the_restored_checkpoint_to_the_next_attempt() -> None:
    assert skipped_marks([(1, 100), (3, 116)], [(0, 0), (5, 1)], 100) == [(6, 16)]
    assert skipped_marks([(1, 100), (2, 110)], [(0, 0), (5, 1), (10, 1)], 100) == []
    assert skipped_marks([(1, 100)], [(0, 1)], 100) == []


ROW = st.tuples(
    st.sampled_from(["AA", "BB", None]),
    st.integers(0, 2),
    st.sampled_from([0.0, 0.5, None]),
)
WINDOW = st.lists(ROW, max_size=4)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(WINDOW, WINDOW), min_size=4, max_size=4))
def test_row_class_counts_equal_a_naive_count(pairs: list[tuple[list[tuple], list[tuple]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        config = Config(state=Path(folder) / "state")
        for number, name in enumerate("ab"):
            windows = {
                100 + w: [as_row(row) for row in pair[number]] for w, pair in enumerate(pairs)
            }
            replay = StagedReplay(config, name, 100, 103).group(
                100,
                103,
                {"ranks": windows, "delays": {}},
            )
            replay.end(ledger=False)
        found = output(certify(config, "a", "b", tolerance=0.0), "ranks")
    wanted = Counter(naive_class(Counter(a), Counter(b)) for a, b in pairs)
    assert {kind: count for kind, count in found.classes.items() if count} == dict(wanted)


def as_row(row: tuple) -> Row:
    return dict(zip(("carrier", "minutes", "share"), row, strict=True))


def naive_class(a: Counter, b: Counter) -> str:
    missing = a - b
    surplus = b - a
    if not missing and not surplus:
        return "equal"
    if not surplus:
        return "lost"
    return "repeated" if not missing and all(row in a for row in surplus) else "changed"


def test_unknown_replays_and_ranges_are_rejected(config: Config) -> None:
    simple(config, "a", 100, 119)
    with pytest.raises(InputError, match='"nobody" is unknown'):
        certify(config, "a", "nobody")
    with pytest.raises(InputError, match="is not published"):
        certify(config, "a", "published")
    with pytest.raises(InputError, match="with itself"):
        certify(config, "published", "published")
    with pytest.raises(RangeError, match="does not contain windows"):
        certify(config, "a", "a", windows=WindowRange(1, 2))
    with pytest.raises(InputError, match="out of range"):
        certify(config, "a", "a", tolerance=-1.0)


def test_certificate_side_json_omits_absent_fields_and_accepts_both_formats() -> None:
    versions = {"t": 3}
    ids = {"t": "x"}
    side = Description(
        name="published",
        application="app",
        first=1,
        last=2,
        table_versions=versions,
        table_ids=ids,
    )
    assert json.loads(side.model_dump_json()) == {
        "name": "published",
        "application": "app",
        "first": 1,
        "last": 2,
        "table_versions": versions,
        "table_ids": ids,
    }
    assert Description.model_validate_json(side.model_dump_json()) == side
    start = StartDescription(source="published", window=None, digest="", lacking=[(1, 2)], stale=[])
    replay = side.model_copy(update={"start_state": start})
    assert replay.model_dump()["start_state"]["window"] is None


def test_windows_of_an_operator_that_reads_external_data_are_not_verifiable(config: Config) -> None:
    # Rules: R88
    simple(config, "a", 100, 119, outside=("ranks",))
    StagedReplay(config, "b", 100, 119).group(
        100, 119, rows_of(range(100, 120)) | {"ranks": rows_of(range(100, 120), 1)["ranks"]}
    ).end()
    certificate = certify(config, "a", "b")
    assert (certificate.verdict, certificate.equal) == (NOT_VERIFIABLE, False)
    assert output(certificate, "delays").classes["equal"] == 20
    ranks = output(certificate, "ranks")
    assert {name: count for name, count in ranks.classes.items() if count} == {"not verifiable": 20}
    assert ranks.ranges == {"not verifiable": [(100, 119)]}
    assert any("ranks_operator reads systems outside" in note for note in certificate.notes)
    assert "c-not verifiable" in certificate_page(certificate)


def test_lost_window_is_a_difference_although_the_output_is_not_verifiable(config: Config) -> None:
    simple(config, "a", 100, 119, outside=("ranks",))
    short = rows_of(range(100, 120))
    StagedReplay(config, "b", 100, 119, outside=("ranks",)).group(100, 118, short).end()
    certificate = certify(config, "a", "b")
    assert certificate.verdict == DIFFERENT
    assert output(certificate, "ranks").ranges == {
        "lost": [(119, 119)],
        "not verifiable": [(100, 118)],
    }
