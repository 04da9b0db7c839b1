"""Which release this is, and where it lies."""

from __future__ import annotations

from pathlib import Path

VERSION = "0.1.0"
PACKAGE = Path(__file__).parent
"""Folder of the package."""
