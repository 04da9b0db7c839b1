"""All exceptions that Rewindow raises on purpose.

    RewindowError              base; a job maps it to an exit code and an outcome file
    ├── InputError             the caller named or passed something invalid (exit code 2)
    │   ├── RangeError         a window range is empty, reversed, unaligned or has missing windows
    │   └── ValidationFailed   an application breaks rules; lists every violation
    ├── OverlapError           another replay or publication has locked the range (retryable)
    ├── FencedError            a newer attempt has taken over; this one must stop, without retry
    ├── CheckpointError        a checkpoint is missing, damaged, stale or foreign
    │   └── CodeChangedError   the code or the configuration differs from the plan's
    ├── NotDeterministicError  a window computed again differs from the committed one
    ├── TableError             a table is damaged, foreign, or has features that we cannot write
    │   └── MissingTableError  a table does not exist
    ├── LedgerError            the ledger is missing or does not answer (retryable)
    ├── DeliveryError          a target could not store windows (retryable)
    ├── GateError              the quality gate did not pass, or checked nothing
    ├── Interrupted            ctrl-C; everything up to a group's end is kept and can be resumed
    │   └── RestartRequested   a user wants a new attempt with other settings (retryable)
    └── ResourceError          no Java, no disk space, a port in use (retryable)

Bugs remain assertions and are never caught.

Rules: O60, R70
"""

from __future__ import annotations

from typing import ClassVar


class RewindowError(Exception):
    """An error with a primary line, an optional detail, and a hint with the next step.

    Args:
        primary: lower case, no full stop; the kind and name of the object, the value and the
            allowed range.
        detail: full sentences about the state after the error, including what was left behind.
        hint: full sentences about what to do next, such as a command.
    """

    retryable: ClassVar[bool] = False
    exit_code: ClassVar[int] = 65

    def __init__(self, primary: str, *, detail: str = "", hint: str = "") -> None:
        super().__init__(primary)
        self.primary = primary
        self.detail = detail
        self.hint = hint

    @property
    def parts(self) -> dict[str, str]:
        """Primary line, detail and hint by name, as they are passed to another process."""
        return {"primary": self.primary, "detail": self.detail, "hint": self.hint}

    def __str__(self) -> str:
        lines = [self.primary]
        lines += [f"  Detail: {self.detail}"] if self.detail else []
        lines += [f"  Hint: {self.hint}"] if self.hint else []
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.primary, self.__dict__.copy()))


def _rebuild(kind: type[RewindowError], primary: str, fields: dict[str, object]) -> RewindowError:
    error = kind.__new__(kind)
    Exception.__init__(error, primary)
    error.__dict__.update(fields)
    return error


class InputError(RewindowError):
    """The caller named or passed something invalid."""

    exit_code = 2


class RangeError(InputError):
    """A window range is empty, reversed, unaligned, not sealed at all, or has missing windows."""


class ValidationFailed(InputError):
    """An application breaks rules; `violations` contains all of them.

    Rules: O60
    """

    def __init__(
        self,
        primary: str,
        *,
        violations: tuple[object, ...] = (),
        detail: str = "",
        hint: str = "",
    ) -> None:
        super().__init__(primary, detail=detail, hint=hint)
        self.violations = violations


class OverlapError(RewindowError):
    """Another replay or publication has locked the range; `holder` is its name."""

    retryable = True
    exit_code = 75

    def __init__(self, primary: str, *, holder: str = "", detail: str = "", hint: str = "") -> None:
        super().__init__(primary, detail=detail, hint=hint)
        self.holder = holder


class FencedError(RewindowError):
    """A newer attempt has taken over; this one has stopped without writing."""


class CheckpointError(RewindowError):
    """A checkpoint is missing, damaged, stale or foreign."""


class CodeChangedError(CheckpointError):
    """The code or the configuration of an application has changed since a replay was planned."""


class NotDeterministicError(RewindowError):
    """A window that was computed again differs from the committed one."""


class TableError(RewindowError):
    """A table is missing, was not created by Rewindow, or has features that Rewindow
    cannot write.
    """


class MissingTableError(TableError):
    """A table does not exist."""


class LedgerError(RewindowError):
    """The ledger is missing or does not answer."""

    retryable = True
    exit_code = 75


class DeliveryError(RewindowError):
    """A target could not store windows; the windows before them are stored."""

    retryable = True
    exit_code = 75


class GateError(RewindowError):
    """The quality gate did not pass, or checked nothing."""


class ResourceError(RewindowError):
    """The machine lacks something that is required: Java, disk space, a free port."""

    retryable = True
    exit_code = 75


class Interrupted(RewindowError):
    """The user stopped the replay at the end of a group; it can be resumed."""

    exit_code = 130


class RestartRequested(Interrupted):
    """A user asked for a new attempt; the attempt ended at the end of a group."""

    retryable = True
    exit_code = 75
