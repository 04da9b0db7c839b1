"""Certificates between replays of two applications: compared is what both have by one name, and
said what is not.
"""

from __future__ import annotations

import pytest

from rewindow.certificate.certificate import DIFFERENT, EQUAL, certify
from rewindow.errors import InputError
from rewindow.pages.certificate_page import certificate_page
from rewindow.settings.config import Config
from tests.publication.staging import HOUR_MS, StagedReplay, rows_of, simple, state_of


def ranks_alone(config: Config, *, plus: int = 0, **how: object) -> None:
    """Stages the same ranks by another application, which has no other output."""
    replay = StagedReplay(
        config,
        "anew",
        100,
        119,
        application="ranks_anew",
        outputs=("ranks",),
        **how,
    )  # type: ignore[arg-type]
    rows = rows_of(range(100, 120))
    rows["ranks"][107][0]["minutes"] += plus
    replay.group(100, 119, rows, state=state_of(0)).end(ledger=False)


def test_two_applications_are_compared_on_their_common_outputs(config: Config) -> None:
    # Rules: O137
    simple(config, "old", 100, 119)
    ranks_alone(config)
    certificate = certify(config, "old", "anew")
    assert (certificate.verdict, [output.name for output in certificate.outputs]) == (
        EQUAL,
        ["ranks"],
    )
    assert (certificate.application, certificate.same_inputs) == ("app and ranks_anew", True)
    assert certificate.notes == [
        'The sides belong to two applications, "app" and "ranks_anew". Only outputs that both '
        "have are compared: ranks.",
        'Not compared, because only "app" has these outputs: delays.',
    ]
    assert "Only outputs that both have are compared" in certificate_page(certificate)
    assert certify(config, "anew", "old").verdict == EQUAL


def test_differences_between_two_applications_are_located_by_window_and_rows(
    config: Config,
) -> None:
    # Rules: O140
    simple(config, "old", 100, 119)
    ranks_alone(config, plus=3, inputs=(("flights", 1), ("weather", 7)))
    certificate = certify(config, "old", "anew")
    assert (certificate.verdict, certificate.same_inputs) == (DIFFERENT, True)
    first = certificate.first_difference
    assert first is not None and (first["window"], first["output"]) == (107, "ranks")
    assert [row["minutes"] for row in first["rows_b"]] == [
        row["minutes"] + 3 for row in first["rows_a"]
    ]


def test_applications_that_read_different_inputs_are_reported(config: Config) -> None:
    # Equal outputs of different recordings do not prove that the code is equivalent.
    simple(config, "old", 100, 119)
    ranks_alone(config, inputs=(("flights", 2),))
    certificate = certify(config, "old", "anew")
    assert certificate.same_inputs is False
    assert "The sides read different versions of their inputs." in certificate.notes


def test_applications_without_a_common_output_or_grid_are_rejected(
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    StagedReplay(config, "left", 100, 119, application="one", outputs=("ranks",))
    StagedReplay(config, "right", 100, 119, application="two", outputs=("delays",))
    with pytest.raises(InputError, match="no output in common") as caught:
        certify(config, "left", "right")
    assert caught.value.detail.endswith('"one" has ranks; "two" has delays.')
    monkeypatch.setattr("tests.publication.staging.HOUR_MS", HOUR_MS // 2)
    ranks_alone(config)
    with pytest.raises(
        InputError,
        match="cover different times: 3,600,000 ms from 0 and 1,800,000 ms from 0",
    ):
        certify(config, "left", "anew")
