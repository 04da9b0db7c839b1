"""Recovery modes: what a new attempt may lose or repeat (docs/rules/recovery.md section 2)."""

from __future__ import annotations

from enum import StrEnum

from rewindow.errors import InputError


class Mode(StrEnum):
    """How a container recovers from a crash.

    exactly_once: the default (X5); nothing lost, nothing repeated; a checkpoint at the end of every commit group (W51).
    at_least_once: nothing lost; windows after the restored checkpoint may be there twice (R48, R51).
    at_most_once: nothing repeated; the commit group in progress is lost, once for each attempt that dies (R49, R13).
    """

    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"
    AT_MOST_ONCE = "at_most_once"

    @classmethod
    def parse(cls, text: str) -> Mode:
        """Returns the mode of a name; dashes and spaces count as underscores.

        Raises:
            InputError: there is no such mode.
        """
        try:
            return cls(text.strip().lower().replace("-", "_").replace(" ", "_"))
        except ValueError as error:
            known = ", ".join(mode.value for mode in cls)
            raise InputError(f'recovery mode "{text}" is unknown', hint=f"Use one of {known}.") from error

    @property
    def words(self) -> str:
        """The mode as a person reads it."""
        return self.value.replace("_", " ")

    def may_feed(self, downstream: Mode) -> bool:
        """Returns whether this mode may feed another (R39): at most once feeds only its own kind."""
        return self is not Mode.AT_MOST_ONCE or downstream is Mode.AT_MOST_ONCE
