"""Publishes replays, undoes publications, and reads published tables at one consistent version.

Nothing that this package exports starts a JVM. `publish`, `undo` and `withdraw` use Spark only for
tables that need it.
"""

from rewindow.publication.read import read_published

__all__ = ["read_published"]
