"""Clocks, and what depends on latencies."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import numpy as np
import pytest

from rewindow.latency.rows import moving_averages
from tests.latency.reference import truncated

LIBRARY = Path(__file__).parents[2] / "rewindow"


@pytest.mark.parametrize("count", [1, 2, 7, 100])
def test_moving_average_is_truncated_toward_zero(count: int) -> None:
    # Rules: L7, L8
    random = Random(count)
    samples = [random.randint(-50, 50) for _ in range(40)]
    wanted = [truncated(samples[: n + 1], count) for n in range(40)]
    assert moving_averages(np.array(samples), count).tolist() == wanted


def test_latency_module_is_imported_only_by_reports() -> None:
    # Rules: L54
    users = set()
    for path in LIBRARY.rglob("*.py"):
        if re.search(r"rewindow(\.| import )latency|config\.latency", path.read_text()):
            users.add(path.relative_to(LIBRARY).parts[0])
    assert users == {"latency", "inspection", "pages", "commands"}
