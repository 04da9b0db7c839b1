"""Publication: replays made visible and taken back; pinned reading.

`publish` needs Spark, and so do `undo` and `withdraw` in `rewindow.publication.undo`; everything
named here starts no JVM.
"""

from rewindow.publication.read import read_published

__all__ = ["read_published"]
