"""A replay whose number of cores changes while it runs."""

from __future__ import annotations

import pytest

from rewindow.cli import main
from rewindow.ledger import AttemptEnd, Ledger
from rewindow.storage import query
from tests.recovery.project import FIRST, GROUP, WINDOWS, Project


@pytest.mark.long
def test_restart_with_fewer_cores_ends_the_attempt_after_its_group(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = project.config
    monkeypatch.setenv("REWINDOW_CONFIG", str(config.file))
    project.plan_of("parallel", "one", "exactly_once")

    def restart(line: str) -> None:
        if f'"mark": {GROUP},' in line:
            with pytest.raises(SystemExit) as end:
                main(["set", "one", "cores_max=1", "--restart"])
            assert not end.value.code

    first = project.attempt("one", on_line=restart)
    assert (first.exit_code, first.retryable) == (75, True)
    last = project.attempt("one")
    assert last.exit_code == 0
    ends = [attempt.outcome for attempt in Ledger.open(config.ledger_url).attempts.of("one")]
    assert ends == [AttemptEnd.INTERRUPTED, AttemptEnd.DONE]
    cores = query(
        "select cores, min(window_id) as first, max(window_id) as last from o group by cores "
        "order by cores desc",
        o=config.replay_root("one") / "cores",
    ).to_pylist()
    # The attempt ends with the group that it has started when the command runs, or the next one.
    [before, after] = cores
    assert (before["cores"], after["cores"]) == (2, 1)
    assert before["first"] == FIRST + 1 and after["last"] == FIRST + WINDOWS - 1
    assert before["last"] < after["first"] <= FIRST + 3 * GROUP + 1
