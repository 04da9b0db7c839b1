"""Rewindow replays recorded streams from Delta tables by window id and proves what came out."""

__version__ = "0.1.0"
