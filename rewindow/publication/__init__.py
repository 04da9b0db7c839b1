"""Publication: replays made visible, taken back, compared; pinned reading.

`publish` needs Spark, and so do `undo` and `withdraw` in `rewindow.publication.take_back`; everything named here starts
no JVM.
"""

from rewindow.publication.certificate import Certificate, certify
from rewindow.publication.contents import published_state
from rewindow.publication.horizon import UndoHorizon, undo_horizon
from rewindow.publication.read import read_published

__all__ = ["Certificate", "UndoHorizon", "certify", "published_state", "read_published", "undo_horizon"]
