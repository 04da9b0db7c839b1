"""Playback: a recorded stream sent once more, at its recorded pace, faster, or as fast as it can be
read.
"""

from rewindow.playback.player import PlaybackStopped, play
from rewindow.playback.report import PlaybackReport
from rewindow.playback.targets import Receiver, on_port, to_stdout

__all__ = ["PlaybackReport", "PlaybackStopped", "Receiver", "on_port", "play", "to_stdout"]
