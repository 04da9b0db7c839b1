"""Notices: a condition is sent once when it starts, worsens and ends, also after a crash."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import update

from rewindow.ledger import Condition, Ledger
from rewindow.ledger.models import notices

MAIL = "mail"
STALE = Condition("windows_stale", "app.out", 3, "3 windows are stale", "app", "repair")


def send(ledger: Ledger, *true: Condition, is_sent: bool = True) -> list[str]:
    """Returns the changes that an evaluation sends, if exactly these conditions are true."""
    seen_at = ledger.notices.clock()
    known = {condition.subject for condition in true}
    over = [one for one in ledger.notices.open(MAIL) if one.subject not in known]
    changes = ledger.notices.claim(MAIL, true, over, seen_at)
    for change in changes:
        ledger.notices.confirm(change, is_sent=is_sent)
    return [change.change.value for change in changes]


def test_condition_is_sent_once_when_it_starts_worsens_and_ends(ledger: Ledger) -> None:
    assert send(ledger, STALE) == ["started"]
    assert send(ledger, replace(STALE, measure=5)) == []
    assert send(ledger, replace(STALE, measure=6)) == ["worsened"]
    assert send(ledger, replace(STALE, measure=11)) == []
    assert send(ledger) == ["ended"]
    assert send(ledger) == []
    assert send(ledger, STALE) == ["started"]


def test_change_that_could_not_be_sent_is_sent_by_the_next_evaluation(ledger: Ledger) -> None:
    assert send(ledger, STALE, is_sent=False) == ["started"]
    assert ledger.notices.open(MAIL) == [STALE]
    assert send(ledger, STALE) == ["started"]
    assert send(ledger, is_sent=False) == ["ended"]
    assert send(ledger) == ["ended"]


def test_condition_that_ends_before_its_start_was_sent_is_not_sent(ledger: Ledger) -> None:
    send(ledger, STALE, is_sent=False)
    assert send(ledger) == []
    assert ledger.notices.open(MAIL) == []


def test_claimed_change_is_not_sent_by_another_process(ledger: Ledger) -> None:
    seen_at = ledger.notices.clock()
    [change] = ledger.notices.claim(MAIL, [STALE], [], seen_at)
    assert send(ledger, STALE) == []
    ledger.notices.confirm(change, is_sent=True)
    assert send(ledger, STALE) == []


def test_claim_of_a_process_that_died_expires(ledger: Ledger) -> None:
    seen_at = ledger.notices.clock()
    ledger.notices.claim(MAIL, [STALE], [], seen_at)
    with ledger.database.writing() as connection:
        long_ago = seen_at - timedelta(minutes=6)
        connection.execute(update(notices).values(changed_at=long_ago))
    assert send(ledger, STALE) == ["started"]


@pytest.mark.parametrize("is_true", [True, False])
def test_process_that_looked_before_a_change_does_not_revert_it(
    is_true: bool,
    ledger: Ledger,
) -> None:
    if is_true:
        send(ledger, STALE)
    earlier = ledger.notices.clock()
    assert send(ledger, *(() if is_true else (STALE,))) == ["ended" if is_true else "started"]
    true, over = ([STALE], []) if is_true else ([], [STALE])
    assert ledger.notices.claim(MAIL, true, over, earlier) == []


def test_each_notifier_has_its_own_notices(ledger: Ledger) -> None:
    assert send(ledger, STALE) == ["started"]
    seen_at = ledger.notices.clock()
    [change] = ledger.notices.claim("webhook", [STALE], [], seen_at)
    assert change.condition == STALE


def test_recording_has_the_dag_and_interval_of_its_newest_run(ledger: Ledger) -> None:
    for interval_us in (60_000_000, 3_600_000_000):
        ledger.notices.schedule("clicks", "record_streams", interval_us)
    recording = ledger.notices.recordings()["clicks"]
    assert (recording.dag_id, recording.interval_us) == ("record_streams", 3_600_000_000)
