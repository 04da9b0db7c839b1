"""Application windows and sliding windows of an operator (docs/rules/windows_and_checkpoints.md,
sections 2 and 3).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Windowing:
    """How many windows an operator treats as one. Application windows are aligned to window ids, so
    they are the same in every replay, and a restored replay can continue inside of one.

    Tuples may be emitted in each window of an application window.

    Attributes:
        application: A, windows of an application window; for a sliding one, its length.
        slide: S, windows from one result of a sliding window to the next; None: it does not slide.

    Rules: W18, W19, W21, W27, X8
    """

    application: int = 1
    slide: int | None = None

    @property
    def pane(self) -> int:
        """The number of windows between `begin_window` and `end_window`.

        A sliding window consists of whole panes.

        Rules: W28
        """
        return self.application if self.slide is None else math.gcd(self.application, self.slide)

    @property
    def panes(self) -> int:
        """The number of panes whose partial results a sliding window merges.

        Rules: W28
        """
        return self.application // self.pane

    def begins(self, window: int) -> bool:
        """Returns whether `begin_window` is called at a window, because it is the first window of a
        pane.

        Rules: W18, X8
        """
        return window % self.pane == 0

    def ends(self, window: int) -> bool:
        """Returns whether `end_window` is called at a window, because it is the last window of a
        pane.

        Rules: W18, X8
        """
        return (window + 1) % self.pane == 0

    def slides(self, window: int) -> bool:
        """Returns whether a sliding window has a result after a window: after the first A windows,
        then every S windows.

        Rules: W28

        >>> [window for window in range(12) if Windowing(6, 4).slides(window)]
        [5, 9]
        """
        done = window + 1 - self.application
        return self.slide is not None and done >= 0 and done % self.slide == 0

    def first_of(self, window: int) -> int:
        """Returns the first window that contributes to a result in the given window.

        >>> Windowing(5).first_of(7), Windowing(5, 2).first_of(7)
        (5, 3)
        """
        return window - (window % self.application if self.slide is None else self.application - 1)

    def last_of(self, window: Any) -> Any:
        """Returns the id of an application window, the last window in it, for a window or a Spark
        column of windows.

        Rules: W24

        >>> [Windowing(5).last_of(window) for window in (0, 4, 5)]
        [4, 4, 9]
        """
        return window - window % self.application + self.application - 1


EVERY_WINDOW = Windowing()
