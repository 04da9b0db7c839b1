"""Playback: sends a recorded stream again, at its recorded pace, at another pace, or as fast as
possible.
"""

from rewindow.playback.player import PlaybackStopped, play
from rewindow.playback.report import PlaybackReport
from rewindow.playback.targets import Receiver, on_port, to_stdout

__all__ = ["PlaybackReport", "PlaybackStopped", "Receiver", "on_port", "play", "to_stdout"]
