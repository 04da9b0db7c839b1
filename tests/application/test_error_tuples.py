"""Which reasons an error tuple may have."""

from __future__ import annotations

from pathlib import Path

import pytest

from rewindow.application.error_tuples import REASONS, check_reasons
from rewindow.errors import InputError

GUIDE = Path(__file__).parents[2] / "docs" / "error_tuples.md"


@pytest.mark.parametrize("reason", [*REASONS, "unknown_country", "x", "http_404", "a" * 40])
def test_error_reason_in_lower_case_is_accepted(reason: str) -> None:
    # Rules: O68, X14
    check_reasons([reason], "shop.rejected")


@pytest.mark.parametrize(
    "reason",
    ["", "No", "no idea", "404", "_late", "late\n", "late-tuple", "a" * 41, "é", None, 7],
)
def test_invalid_error_reason_is_rejected_with_its_port_and_the_built_in_reasons(
    reason: object,
) -> None:
    # Rules: O68, X14
    with pytest.raises(InputError, match='on port "shop.rejected" is not a name') as caught:
        check_reasons(["late", reason], "shop.rejected")
    assert repr(reason) in str(caught.value)
    assert "far_future" in caught.value.hint


def test_guide_explains_every_built_in_reason() -> None:
    text = GUIDE.read_text()
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    documented = {name for row in rows for name in row.split("`")[1::2]}
    assert set(REASONS) <= documented
