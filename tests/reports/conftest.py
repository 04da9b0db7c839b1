"""Fixtures of the page tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from rewindow.config import Config


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Settings with all state in a folder of the test."""
    file = tmp_path / "rewindow.toml"
    file.write_text(f'state = "{tmp_path / "state"}"\n')
    return Config.load(file)
