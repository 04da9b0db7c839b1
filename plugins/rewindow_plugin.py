"""Registers the plugin of a checkout; an installed package does so by its entry point."""

from __future__ import annotations

from rewindow_airflow.plugin import RewindowPlugin

__all__ = ["RewindowPlugin"]
