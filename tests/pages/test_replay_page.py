"""The page of a replay, read from tables and ledger."""

from __future__ import annotations

import pytest

from rewindow.certificate.certificate import certify
from rewindow.errors import InputError
from rewindow.pages import replay_page
from rewindow.pages.certificate_page import write_certificate
from rewindow.pages.report_data import _finding, read_acts, read_report
from rewindow.recovery import Plan
from rewindow.settings.config import Config
from rewindow.windows import WindowRange
from tests.pages import replays


def test_replay_page_is_written_with_its_certificate(
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replay_page, "read_layers", lambda config, plan: ())
    replays.undisturbed(config)
    replays.killed_at_most_once(config)
    write_certificate(config, certify(config, "calm", "never_twice"))
    path = replay_page.build_replay_page(config, "never_twice")
    html = path.read_text()
    assert path.parent == config.results / "pages"
    assert "lost: [105, 109]" in html and ">different<" in html
    assert 'href="../certificates/calm--never_twice' in html


def test_unknown_replay_has_no_page(config: Config) -> None:
    with pytest.raises(InputError, match='replay "nobody" is unknown'):
        replay_page.build_replay_page(config, "nobody")


def test_report_contains_guarantees_checkpoints_and_state(config: Config) -> None:
    replay = replays.killed_exactly_once(config)
    report = read_report(config, "once")
    assert report.checkpoints == (104, 109, 114, 119) and report.state == "checked"
    assert (
        set(report.guarantees) == {"delays", "ranks"}
        and Plan.model_validate(replay.plan).range == report.windows
    )
    assert read_acts(config, "app", WindowRange(100, 119)) == ()


def test_gate_result_with_an_unknown_status_is_damaged() -> None:
    check = {"check": "no-nulls", "description": "no nulls", "status": "rassed", "blocks": True}
    with pytest.raises(ValueError, match='unknown status "rassed" of check no-nulls'):
        _finding("delays", check | {"failing_windows": 0, "failing": [], "observed": ""})
