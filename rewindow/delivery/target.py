"""Base class of targets, which store published windows outside of Rewindow (X54)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

EXACTLY_ONCE = "exactly once"
AT_LEAST_ONCE = "at least once"


@dataclass(frozen=True)
class WindowRows:
    """A window that must be delivered, with its rows.

    Attributes:
        publication: number of the newest publication or undo of the output.
        digest: digest of its rows; None if the window is no longer published.
        tuples: number of its rows.
        batches: function that returns its rows in batches with the columns of the output.
    """

    window_id: int
    publication: int
    digest: str | None
    tuples: int
    batches: Callable[[], Iterable[pa.RecordBatch]]


@dataclass(frozen=True)
class RejectedRow:
    """A row that a target rejected, with the reason."""

    window_id: int
    reason: str
    row: Mapping[str, object]


@dataclass
class WriteResult:
    """The result of writing windows.

    Attributes:
        rejected: rows that the target rejected; the other rows of their windows are stored.
        notes: messages for the user.
    """

    rejected: list[RejectedRow] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Target:
    """Stores the published windows of one output.

    To use a subclass in a file of the project, set `format = "python"` and `source =
    "targets.py:Webhook"` in `[targets.NAME]`. The keys of `settings` become its attributes, which
    the class must annotate.

    Rewindow writes each window whose published digest differs from that in `delivered`. For a
    window that is no longer published, the digest is None and no rows are passed. Each window is
    stored exactly once if `write` stores its rows and digest in one step.

    Example::

        class Webhook(Target):
            url: str

            def delivered(self):
                return {int(k): v for k, v in requests.get(self.url).json().items()}

            def write(self, window_id, publication, digest, batches):
                rows = pa.Table.from_batches(batches).to_pylist()
                requests.put(f"{self.url}/{window_id}", json={"digest": digest, "rows": rows})
    """

    promise: str = EXACTLY_ONCE

    def __init__(self, **settings: object) -> None:
        for name, value in settings.items():
            setattr(
                self,
                name,
                value,
            )

    def open(self, stream: str, columns: pa.Schema) -> None:
        """Prepares the target for an output. `stream` is `application.output`."""

    def delivered(self) -> Mapping[int, str]:
        """Returns the digest of each window that the target stores, by window id."""
        raise NotImplementedError

    def write(
        self,
        window_id: int,
        publication: int,
        digest: str | None,
        batches: Iterable[pa.RecordBatch],
    ) -> None:
        """Replaces the rows and the digest of a window.

        If the digest is None, removes both.

        Raises:
            OSError: the target has failed; the delivery stops with a message about its windows.
        """
        raise NotImplementedError

    def write_all(self, windows: Sequence[WindowRows]) -> WriteResult:
        """Writes several windows.

        A target with transactions overrides this method to write all of them in one transaction.
        """
        for one in windows:
            self.write(
                one.window_id,
                one.publication,
                one.digest,
                one.batches(),
            )
        return WriteResult()

    def close(self) -> None:
        """Releases everything that `open` has acquired. It is also called after an error."""

    @property
    def knows_its_windows(self) -> bool:
        """Whether the target lists its windows. It does if it defines `delivered`."""
        return type(self).delivered is not Target.delivered
