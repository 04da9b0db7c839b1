"""Rewindow replays recorded streams from Delta tables by window id and proves what came out."""

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Gives `rewindow.read_published` without importing it before it is asked for."""
    if name == "read_published":
        from rewindow.publication import read_published

        return read_published
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
