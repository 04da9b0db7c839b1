"""The next step for a replay: a command that works, and a short text about the reason why the
replay stopped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rewindow.inspection.visibility import Visibility, visibility
from rewindow.launcher.processes import is_gone
from rewindow.launcher.readiness import obstacle
from rewindow.ledger import Ledger, Publication
from rewindow.ledger.replays import Replay, ReplayState
from rewindow.names import PUBLISHED, whole_replay
from rewindow.settings.config import Config
from rewindow.storage import Table
from rewindow.storage.layout import CHECKPOINTS

CAUSE_LINES_MAX = 4
LINE_CHARACTERS_MAX = 500
_STACK = re.compile(
    r"\s*(at [\w.$/]+\(|\.\.\. \d+ more|File \"|Traceback \(|Caused by: |Driver stacktrace|JVM "
    r"stacktrace)"
)
_HINT = "  Hint: "


def next_step(name: str, state: ReplayState) -> str:
    """Returns the text of the next step for a replay in a given state, assuming that there is no
    obstacle.
    """
    return {
        ReplayState.PLANNED: f"Next: rewindow replay --resume {name}",
        ReplayState.RUNNING: "It is running. If its process has ended, resume it: rewindow replay "
        f"--resume {name}",
        ReplayState.FAILED: f"Next: rewindow replay --resume {name}; or abandon it: rewindow "
        f"abandon {name}",
        ReplayState.ENDED: f"Next: rewindow check {name}",
        ReplayState.CHECKED: f"Next: rewindow publish {name}",
        ReplayState.PUBLISHED: f"To undo the publication: rewindow undo {name}",
        ReplayState.UNDONE: f"To publish it again: rewindow publish {name}",
        ReplayState.ABANDONED: "It was abandoned and cannot be resumed. To delete its staged "
        "tables: rewindow purge",
    }[state]


def next_steps(config: Config, row: Replay) -> tuple[str, bool]:
    """Returns the next step for a replay as text, and whether its next attempt could start now.

    If a resume would be rejected, the text contains the reason and the command that works. If the
    last attempt ended with an error that names the next step, that step is returned.
    """
    whole = whole_replay(row.replay_id)
    if whole != row.replay_id:
        return f"It is a container of replay {whole}: rewindow status {whole}", False
    ledger = Ledger.open(config.ledger_url)
    checks = ledger.checks.newest(row.replay_id, limit=1)
    words = (
        _of_publications(row, ledger.publications.newest(row.replay_id), visibility(ledger, row))
        or _of_staged(config, row, checks[0].verdict if checks else "")
        or _of_attempt(ledger, row)
    )
    if words:
        return words, False
    gone = has_stopped_unnoticed(ledger, row)
    if row.state not in (ReplayState.PLANNED, ReplayState.FAILED) and not gone:
        return next_step(row.replay_id, row.state), row.state is ReplayState.RUNNING
    against = obstacle(config, row.read_plan())
    if against is not None:
        detail = f" {against.detail}" if against.detail else ""
        words = f"It cannot be resumed: {against.primary}.{detail}"
        return f"{words}\nNext: {against.hint or f'rewindow abandon {row.replay_id}'}", False
    return _of_failure(row, ReplayState.FAILED if gone else row.state), True


def brief_next_step(
    config: Config,
    row: Replay,
    acts: Sequence[Publication],
    seen: Visibility,
    verdict: str,
) -> str:
    """Returns the next step for a replay as text, as `next_steps` does, for a list of many replays.

    It does not check whether a resume would be rejected, because that loads the application.

    Args:
        config: current settings.
        row: the replay.
        acts: its publications.
        seen: the publications that cover it.
        verdict: the newest verdict of its gate; empty if it has none.
    """
    return (
        _of_publications(row, acts, seen)
        or _of_staged(config, row, verdict)
        or _of_failure(row, row.state)
    )


def _of_failure(row: Replay, state: ReplayState) -> str:
    """Returns the next step that the error of the last attempt names, otherwise that of a state."""
    hint = row.message.partition(f"\n{_HINT}")[2].strip()
    if row.state is ReplayState.FAILED and hint:
        return f"Next: {hint}"
    return next_step(row.replay_id, state)


def has_stopped_unnoticed(ledger: Ledger, row: Replay) -> bool:
    """Returns whether a replay is recorded as running although its process has ended without a
    recorded outcome.
    """
    if row.state is not ReplayState.RUNNING:
        return False
    for one in [row, *ledger.replays.containers(row.replay_id)]:
        last = ledger.attempts.last(one.replay_id) if one.state is ReplayState.RUNNING else None
        if last is not None and is_gone(last):
            return True
    return False


def _of_publications(row: Replay, acts: Sequence[Publication], seen: Visibility) -> str:
    """Returns the next step if a publication is open or covered by a later one; otherwise an empty
    text.
    """
    if any(act.closed_at is None for act in acts):
        finish = f"rewindow publish {row.replay_id}"
        return (
            f"It has an unfinished publication. Finish it: {finish}; or withdraw it: {finish} "
            "--withdraw"
        )
    if seen.covered_by:
        return (
            f"It is {seen}. To undo it, undo the newest publication first: rewindow undo "
            f"{seen.covered_by[0]}"
        )
    return ""


def _of_staged(config: Config, row: Replay, verdict: str) -> str:
    """Returns the next step if staged tables were purged, the gate has not passed, or the replay
    must not be published; otherwise an empty text.
    """
    if row.state not in (ReplayState.ENDED, ReplayState.CHECKED, ReplayState.UNDONE):
        return ""
    if not Table.exists(config.replay_root(row.replay_id) / CHECKPOINTS):
        return (
            "Its staged tables were purged. To publish its range, compute it again: "
            f"{row.read_plan().command}"
        )
    if row.plan.get("candidate"):
        return (
            "It is a candidate, which is never published: compare it with rewindow certify "
            f"{PUBLISHED} {row.replay_id}"
        )
    if row.state is ReplayState.ENDED and verdict not in ("", "passed"):
        accept = f'rewindow publish {row.replay_id} --accept "REASON"'
        return (
            "Its gate did not pass. Correct the cause and replay the range; or publish it anyway: "
            f"{accept}"
        )
    return ""


def _of_attempt(ledger: Ledger, row: Replay) -> str:
    """Returns the next step while an attempt is starting and has not reported its process yet;
    otherwise an empty text.
    """
    last = (
        ledger.attempts.last(row.replay_id)
        if row.state in (ReplayState.PLANNED, ReplayState.FAILED)
        else None
    )
    if last is None or last.outcome is not None or last.host is not None:
        return ""
    begun = (
        f"Attempt {last.epoch} has been starting since {last.began_at:%H:%M:%S} UTC: wait for it"
    )
    return f"{begun}. If it does not start: rewindow replay --resume {row.replay_id}"


def cause(message: str) -> str:
    r"""Returns the cause of a failure in at most four lines. Stack frames of Python and the JVM and
    the hint are left out.

    >>> print(cause("Job aborted\n\tat a.B(C.scala:1)\nCaused by: java.io.IOException: disk full"))
    Job aborted
    java.io.IOException: disk full
    """
    text = message.partition(f"\n{_HINT}")[0]
    lines = list(filter(None, map(str.rstrip, text.splitlines())))
    first = next((number for number, line in enumerate(lines) if _STACK.match(line)), len(lines))
    kept = lines[:first]
    causes = []
    python = []
    # The JVM lists causes from the outermost to the innermost, and Python ends with the error: the
    # last line of either kind is the root cause.
    for line in lines[first:]:
        if line.strip().startswith("Caused by: "):
            causes.append(line.strip().removeprefix("Caused by: "))
        elif not line.startswith((" ", "\t")) and not _STACK.match(line):
            python.append(line)
    kept = kept[: CAUSE_LINES_MAX - 1] + (causes or python)[-1:]
    return "\n".join(
        f"{line[:LINE_CHARACTERS_MAX]} ..." if len(line) > LINE_CHARACTERS_MAX else line
        for line in kept
    )
