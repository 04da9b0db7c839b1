"""The first page in Airflow: replays, newest first, and streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rewindow.inspection.next_steps import cause
from rewindow.inspection.replay_progress import ProgressEstimate, replay_progress
from rewindow.inspection.visibility import outcome
from rewindow.ledger import Ledger
from rewindow.ledger.replays import RUNNABLE, Replay
from rewindow.pages.drawing import draw
from rewindow.recording.inventory import StreamEntry
from rewindow.settings.config import Config
from rewindow.windows import format_time

_ACTS_MAX = 3


@dataclass(frozen=True)
class ReplayLine:
    """A replay in the overview.

    Attributes:
        times: the range as times; None if it is not known any more.
        verdict: the newest verdict of the gate; empty before the first one.
        publications: number and outcome of the newest publications and undos.
        message: the first line of the reason for its state.
    """

    row: Replay
    times: tuple[str, str] | None
    progress: ProgressEstimate
    verdict: str
    publications: tuple[str, ...]
    message: str

    @property
    def is_open(self) -> bool:
        """Whether the replay has windows to compute."""
        return self.row.state in RUNNABLE


def draw_overview(
    config: Config,
    rows: Sequence[Replay],
    streams: Sequence[StreamEntry] | None,
    *,
    pages: Mapping[str, str],
    steps: Mapping[str, str],
    notice: str = "",
) -> str:
    """Returns the overview as HTML.

    Args:
        config: current settings.
        rows: the replays to list.
        streams: the streams to list; None if the reader has no right to see them.
        pages: further pages: name to address.
        steps: older and newer parts of the list: name to address.
        notice: a problem to show.
    """
    lines = []
    if rows:
        ledger = Ledger.open(config.ledger_url, make=False)
        lines = [_line(ledger, row) for row in rows]
        ledger.close()
    return draw(
        "overview.html",
        lines=lines,
        streams=None if streams is None else [(entry, _sealed_to(entry)) for entry in streams],
        pages=pages,
        steps=steps,
        notice=notice,
    )


def _line(ledger: Ledger, row: Replay) -> ReplayLine:
    checks = ledger.checks.newest(row.replay_id, limit=1)
    acts = ledger.publications.newest(row.replay_id)
    publications = []
    for act in acts[:_ACTS_MAX]:
        publications.append(f"{act.kind} {act.number}: {outcome(act, acts)}")
    return ReplayLine(
        row,
        row.times(),
        replay_progress(ledger, row),
        verdict=checks[0].verdict if checks else "",
        publications=tuple(publications),
        message=cause(row.message).partition("\n")[0],
    )


def _sealed_to(entry: StreamEntry) -> str:
    """Returns the end of a stream's last sealed window as a time; empty if none is sealed."""
    return "" if entry.sealed is None else format_time(entry.grid.end_us(entry.sealed.last))
