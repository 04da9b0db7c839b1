"""The release number, and the folder of the installed package."""

from __future__ import annotations

from pathlib import Path

VERSION = "0.2.0"
PACKAGE = Path(__file__).parent
"""Folder of the package."""
