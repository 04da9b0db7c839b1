"""Rewindow replays recorded streams from Delta tables by window id and proves what came out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rewindow.version import VERSION

if TYPE_CHECKING:
    from rewindow.publication.read import read_published

__version__ = VERSION
__all__ = ["read_published"]


def __getattr__(name: str) -> Any:
    """Returns what readers of published streams import from here; loaded only when asked for."""
    if name == "read_published":
        from rewindow.publication.read import read_published

        return read_published
    raise AttributeError(name)
