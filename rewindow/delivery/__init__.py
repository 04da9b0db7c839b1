"""Delivers published windows to targets outside of Rewindow."""

from rewindow.delivery.target import Target

__all__ = ["Target"]
