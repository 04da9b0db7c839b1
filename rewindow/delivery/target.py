"""A target: where published windows go, each stored once (X54)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

EXACTLY_ONCE = "exactly once"
AT_LEAST_ONCE = "at least once"


@dataclass(frozen=True)
class WindowRows:
    """A window to be delivered.

    Attributes:
        publication: number of the publication that the window is read from.
        digest: of its rows; None where the window is no longer published.
        tuples: number of its rows.
        batches: returns its rows, with the columns of the output.
    """

    window_id: int
    publication: int
    digest: str | None
    tuples: int
    batches: Callable[[], Iterable[pa.RecordBatch]]


@dataclass(frozen=True)
class RejectedRow:
    """A row that a target did not take, and why."""

    window_id: int
    reason: str
    row: Mapping[str, object]


@dataclass
class WriteResult:
    """Result of writing some windows.

    Attributes:
        rejected: rows that it did not take; the other rows of their windows are stored.
        notes: lines for people.
    """

    rejected: list[RejectedRow] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Target:
    """Stores the published windows of one output.

    A subclass in a file of the project is used with `format = "python"` and `source =
    "targets.py:Webhook"`; keys of `settings` are its attributes.

    A window is written when the digest in `delivered` differs from that of its published rows. If a
    window is no longer published, it is written without rows. `write` must store rows and digest in
    one step; only then each window is stored exactly once.

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
        """Prepares the target for an output, named `application.output`, with its columns."""

    def delivered(self) -> Mapping[int, str]:
        """Returns the digest of each window that the target stores."""
        raise NotImplementedError

    def write(
        self,
        window_id: int,
        publication: int,
        digest: str | None,
        batches: Iterable[pa.RecordBatch],
    ) -> None:
        """Replaces the rows of a window, and stores its digest; without a digest, removes both."""
        raise NotImplementedError

    def write_all(self, windows: Sequence[WindowRows]) -> WriteResult:
        """Replaces the rows of several windows; a target with transactions does so in one."""
        for one in windows:
            self.write(
                one.window_id,
                one.publication,
                one.digest,
                one.batches(),
            )
        return WriteResult()

    def close(self) -> None:
        """Closes what `open` has opened; also called after an error."""

    @property
    def knows_its_windows(self) -> bool:
        """Whether the target lists its windows."""
        return type(self).delivered is not Target.delivered
