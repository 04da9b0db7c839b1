"""Fixtures of the gate's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.quality.staging import StagedReplay


@pytest.fixture
def staged(tmp_path: Path) -> StagedReplay:
    """A faultless replay, not yet written."""
    return StagedReplay(tmp_path)
