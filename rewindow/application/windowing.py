"""Application windows and sliding windows of one operator (docs/rules/windows_and_checkpoints.md,
sections 2 and 3).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Windowing:
    """How many windows an operator takes as one, aligned to window ids and so the same in every
    replay (X8).

    So a restored replay goes on inside of one (W21). Tuples may be emitted in each of its windows
    (W19).

    Attributes:
        application: A, windows of an application window (W18); of a sliding one, how far it looks
            back (W27).
        slide: S, windows from one result of a sliding window to the next; None: it does not slide.
    """

    application: int = 1
    slide: int | None = None

    @property
    def pane(self) -> int:
        """Windows between `begin_window` and `end_window`; a sliding window is made of whole panes
        (W28).
        """
        return self.application if self.slide is None else math.gcd(self.application, self.slide)

    @property
    def panes(self) -> int:
        """Partial results that a sliding window merges (W28)."""
        return self.application // self.pane

    def begins(self, window: int) -> bool:
        """Returns whether `begin_window` is called at a window: the first of its application window
        (W18, X8).
        """
        return window % self.pane == 0

    def ends(self, window: int) -> bool:
        """Returns whether `end_window` is called at a window: the last of its application window
        (W18, X8).
        """
        return (window + 1) % self.pane == 0

    def slides(self, window: int) -> bool:
        """Returns whether a sliding window has a result: once A windows are done, then every S
        windows (W28).

        >>> [window for window in range(12) if Windowing(6, 4).slides(window)]
        [5, 9]
        """
        done = window + 1 - self.application
        return self.slide is not None and done >= 0 and done % self.slide == 0

    def first_of(self, window: int) -> int:
        """Returns the first window that a result in a window is about: of its application window,
        or looked back to.

        >>> Windowing(5).first_of(7), Windowing(5, 2).first_of(7)
        (5, 3)
        """
        return window - (window % self.application if self.slide is None else self.application - 1)

    def last_of(self, window: Any) -> Any:
        """Returns the last window of the application window of a window, which is its id (W24);
        also of a column.

        >>> [Windowing(5).last_of(window) for window in (0, 4, 5)]
        [4, 4, 9]
        """
        return window - window % self.application + self.application - 1


EVERY_WINDOW = Windowing()
