"""The links of a replay's tasks, which are shown as soon as a task starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from rewindow_airflow.approval import ApprovePublicationOperator
from rewindow_airflow.forms import STAGED
from rewindow_airflow.operators import RewindowSubmitOperator
from rewindow_airflow.steps import RewindowCheckOperator


class Pushes(dict[str, str]):
    """A task instance that stores pushed XComs."""

    try_number = max_tries = 0

    def xcom_push(self, key: str, value: str) -> None:
        self[key] = value


@pytest.mark.parametrize(
    "operator",
    [
        RewindowCheckOperator(task_id="check_windows", replay="r-1"),
        RewindowSubmitOperator(task_id="replay_windows", job="replay", replay="r-1@first"),
        ApprovePublicationOperator(task_id="approve_publication", replay="r-1"),
    ],
    ids=lambda operator: operator.task_id,
)
def test_task_of_a_replay_shows_its_links_before_it_does_anything_else(
    operator: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "rewindow.toml").write_text('state = "state"\n')
    monkeypatch.setenv("REWINDOW_CONFIG", str(tmp_path / "rewindow.toml"))
    pushed = Pushes()
    with pytest.raises((AirflowFailException, AirflowSkipException)):
        operator.execute({"ti": pushed, "params": {"publish": STAGED}})
    assert pushed == {
        "_link_ReplayLink": "/rewindow/replays/r-1/page",
        "_link_WindowReportLink": "/rewindow/replays/r-1/report",
        "_link_DataDocsLink": "/rewindow/replays/r-1/docs",
        "_link_CertificateLink": "/rewindow/replays/r-1/certificate",
    }
