"""Every error that Rewindow raises on purpose.

    RewindowError              base; a job maps it to an exit code and an outcome file
    ├── InputError             the caller named or passed something invalid (exit code 2)
    │   ├── RangeError         a window range is empty, reversed, unaligned or has missing windows
    │   └── ValidationFailed   an application breaks rules; carries every violation (O60)
    ├── OverlapError           another replay or publication holds the range (retryable)
    ├── FencedError            a newer attempt has taken over; this one must stop, without retry
    ├── CheckpointError        a checkpoint is missing, damaged, stale or foreign
    ├── NotDeterministicError  a window computed again differs from the committed one (R70)
    ├── TableError             a table is damaged, foreign, or has features we cannot commit to
    │   └── MissingTableError  a table does not exist
    ├── LedgerError            the ledger is gone or does not answer (retryable)
    ├── GateError              the quality gate did not pass, or checked nothing
    ├── ResourceError          no Java, no disk space, a port in use (retryable)
    └── Interrupted            ctrl-C; everything up to a group's end is kept and can be resumed

A bug stays an assertion and is never caught.
"""

from __future__ import annotations

from typing import ClassVar


class RewindowError(Exception):
    """An error with a primary line, an optional detail and a hint that names the next act.

    Args:
        primary: lower case, no full stop; names the object's kind and name, the value and the
            allowed range.
        detail: full sentences on the state of things, also what was left behind.
        hint: full sentences on what to do next.
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
        """Primary line, detail and hint by name, as they cross to another process."""
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
    """The caller named or gave something that cannot be."""

    exit_code = 2


class RangeError(InputError):
    """A window range is empty, reversed, unaligned, not sealed at all, or has missing windows."""


class ValidationFailed(InputError):
    """An application breaks rules; `violations` holds every one of them (O60)."""

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
    """Another replay or publication holds the range; `holder` names it."""

    retryable = True
    exit_code = 75

    def __init__(self, primary: str, *, holder: str = "", detail: str = "", hint: str = "") -> None:
        super().__init__(primary, detail=detail, hint=hint)
        self.holder = holder


class FencedError(RewindowError):
    """A newer attempt has taken over; this one has stopped without writing."""


class CheckpointError(RewindowError):
    """A checkpoint is missing, damaged, stale or foreign."""


class NotDeterministicError(RewindowError):
    """A window computed again differs from what is already committed."""


class TableError(RewindowError):
    """A table is missing, is not ours, or has features that we cannot commit to."""


class MissingTableError(TableError):
    """A table does not exist."""


class LedgerError(RewindowError):
    """The ledger is gone or does not answer."""

    retryable = True
    exit_code = 75


class DeliveryError(RewindowError):
    """A target could not store windows; the windows before them are stored."""

    retryable = True
    exit_code = 75


class GateError(RewindowError):
    """The quality gate did not pass, or checked nothing."""


class ResourceError(RewindowError):
    """Something that the machine must have is not there: Java, disk space, a free port."""

    retryable = True
    exit_code = 75


class Interrupted(RewindowError):
    """Stopped by the user at a group's end; the replay can be resumed."""

    exit_code = 130
