"""The page of one window of a replay, with the same content as `rewindow why`."""

from __future__ import annotations

from rewindow.inspection.window_life import window_life
from rewindow.pages.drawing import draw
from rewindow.settings.config import Config


def draw_window_page(config: Config, replay_id: str, window: int) -> str:
    """Returns the page of a window as HTML. Starts no JVM.

    Raises:
        InputError: no replay has this id, or the replay does not contain the window.
    """
    return draw("window.html", life=window_life(config, replay_id, str(window)))
