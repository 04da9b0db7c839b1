"""Compares the guarantees of each mode with the tables. A violated guarantee ends the demo."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import starmap

import numpy as np
import numpy.typing as npt

from rewindow.application import Mode
from rewindow.certificate.certificate import Certificate, certify
from rewindow.demo.drill import group_ends
from rewindow.demo.watch import DemoRun
from rewindow.errors import RewindowError
from rewindow.inspection.counts import ReplayCount, count_replay
from rewindow.ledger import Ledger
from rewindow.location import Location
from rewindow.pages.certificate_page import write_certificate
from rewindow.recovery import Plan
from rewindow.settings.config import Config
from rewindow.storage import Table, query
from rewindow.windows import WindowRange, to_ranges


@dataclass(frozen=True)
class Proof:
    """The result of verifying one replay.

    Attributes:
        certificate: comparison with the undisturbed replay; None for the undisturbed replay.
        sentences: the confirmed promises, as text.
    """

    run: DemoRun
    count: ReplayCount
    certificate: Certificate | None
    sentences: tuple[str, ...]


def prove(config: Config, run: DemoRun, reference: DemoRun | None) -> Proof:
    """Checks each guarantee of a replay's mode, and returns the result.

    Args:
        reference: the undisturbed replay; None if this is the undisturbed replay.

    Raises:
        RewindowError: a promise is broken; names the windows.
    """
    plan = Ledger.open(config.ledger_url).replays.get(run.replay_id).read_plan()
    count = count_replay(plan, config.replay_root(run.replay_id))
    facts = _Facts(config, run, plan, count=count)
    facts.claim("every window is accounted for", not facts.unaccounted(), facts.unaccounted())
    if reference is None:
        return Proof(run, count, None, sentences=facts.untouched())
    certificate = write_certificate(config, certify(config, reference.replay_id, run.replay_id))
    checks: dict[Mode, Callable[[Certificate], tuple[str, ...]]] = {
        Mode.EXACTLY_ONCE: facts.exactly_once,
        Mode.AT_LEAST_ONCE: facts.at_least_once,
        Mode.AT_MOST_ONCE: lambda found: facts.at_most_once(
            found,
            config.replay_root(reference.replay_id),
        ),
    }
    return Proof(run, count, certificate, sentences=checks[plan.mode](certificate))


class _Facts:
    """Queries over one replay's tables."""

    def __init__(self, config: Config, run: DemoRun, plan: Plan, count: ReplayCount) -> None:
        self._config = config
        self._run = run
        self._plan = plan
        self._count = count

    def claim(self, words: str, holds: bool, windows: Sequence[WindowRange] = ()) -> str:
        """Checks that a sentence is true and returns it.

        Raises:
            RewindowError: it is not true.
        """
        if holds:
            return words
        listed = ", ".join(map(str, windows[:5])) + (" ..." if len(windows) > 5 else "")
        raise RewindowError(
            f'violated guarantee of replay "{self._run.replay_id}" ({self._plan.mode.words}): '
            f"{words}",
            detail=f"Windows: {listed}." if listed else f"Killed at {self._run.drill.crash}.",
            hint=f"Its tables are kept in {self._config.replay_root(self._run.replay_id)}; see a "
            "window with rewindow why.",
        )

    def unaccounted(self) -> list[WindowRange]:
        """Returns windows of an output that are neither sealed nor listed as lost."""
        missing = [(count.taken == 0) & ~count.lost for count in self._count.outputs.values()]
        return self._ranges(missing)

    def untouched(self) -> tuple[str, ...]:
        """Checks the guarantees for an undisturbed replay."""
        counts = self._count.summary()
        found = (counts.redone, counts.lost, counts.repeated, counts.affected)
        return (
            self.claim("no window is computed again, lost, repeated or affected", not any(found)),
        )

    def exactly_once(self, certificate: Certificate) -> tuple[str, ...]:
        """Checks that every window exists once and equals the undisturbed replay.

        At most the killed group may have been computed again.
        """
        counts = self._count.summary()
        redone = self._ranges([self._count.redone])
        once = not counts.lost and not counts.repeated and not counts.affected
        return (
            self.claim("every window exists once", once, self._repeated()),
            self._equal(certificate),
            self.claim(
                f"only windows of the killed group were computed again: {_words(redone)}",
                self._is_killed_group(redone),
                redone,
            ),
        )

    def at_least_once(self, certificate: Certificate) -> tuple[str, ...]:
        """Checks that nothing is lost, and that repeats are limited to the windows after the
        restored checkpoint.
        """
        counts = self._count.summary()
        repeated = self._repeated()
        checkpoint = self._count.resumed_after.get(2, self._plan.first - 1)
        confined = (
            bool(repeated) and repeated[0].first > checkpoint and self._is_killed_group(repeated)
        )
        return (
            self.claim("no window is lost", not counts.lost and not counts.affected),
            self.claim(
                f"repeats are confined to windows after the checkpoint at {checkpoint}: "
                f"{_words(repeated)}",
                confined,
                repeated,
            ),
            self._equal(certificate),
        )

    def at_most_once(self, certificate: Certificate, reference: Location) -> tuple[str, ...]:
        """Checks that nothing is repeated, and that the missing windows of each output are exactly
        the listed ones.

        They must be at most one group.
        """
        counts = self._count.summary()
        sentences = [
            self.claim(
                "no window exists twice",
                not counts.repeated and not counts.redone,
                self._repeated(),
            )
        ]
        for output in (
            output for output in certificate.outputs if output.name in self._count.outputs
        ):
            listed = self._ranges([self._count.outputs[output.name].lost])
            absent = self._absent(output.name, reference)
            compared = list(starmap(WindowRange, output.ranges.get("lost", [])))
            exact = listed == absent == compared and (not listed or self._is_killed_group(listed))
            words = f"{output.name}: exactly the listed windows are lost, {_words(listed)}"
            sentences.append(self.claim(words, exact, absent or listed or compared))
        lost_any = counts.lost > 0 and counts.affected > 0
        sentences.append(
            self.claim(f"{counts.affected:,} later windows are marked as affected", lost_any)
        )
        return tuple(sentences)

    def _equal(self, certificate: Certificate) -> str:
        differing: list[WindowRange] = []
        for output in certificate.outputs:
            for ranges in output.ranges.values():
                differing += starmap(WindowRange, ranges)
        words = "readers see the same output as that of the undisturbed replay"
        return self.claim(words, certificate.equal and certificate.digest != "", differing)

    def _is_killed_group(self, ranges: list[WindowRange]) -> bool:
        """Returns whether windows are exactly those of the group in which the job was killed."""
        return ranges == [self.killed_group()]

    def killed_group(self) -> WindowRange:
        """Returns the windows of the group in which the job was killed. In exactly once, groups
        have a fixed number of windows; otherwise they end at due checkpoints.
        """
        plan = self._plan
        number = self._run.drill.group
        if plan.mode is Mode.EXACTLY_ONCE and plan.group_windows:
            first = plan.first + (number - 1) * plan.group_windows
            return WindowRange(first, min(first + plan.group_windows - 1, plan.last))
        ends = [plan.first - 1, *group_ends(plan.range, plan.checkpoint_windows)]
        return WindowRange(ends[number - 1] + 1, ends[number])

    def _absent(self, output: str, reference: Location) -> list[WindowRange]:
        """Returns windows with rows of an output in the undisturbed replay but not in this one."""
        sql = (
            "select distinct window_id from r where window_id not in (select distinct window_id "
            "from t)"
        )
        mine = self._config.replay_root(self._run.replay_id) / output
        rows = query(sql, r=Table.open(reference / output), t=Table.open(mine))
        return to_ranges(rows["window_id"].to_pylist())

    def _repeated(self) -> list[WindowRange]:
        return self._ranges(count.repeated for count in self._count.outputs.values())

    def _ranges(self, masks: Iterable[npt.NDArray[np.bool_]]) -> list[WindowRange]:
        """Returns the windows that at least one of the given masks over the range marks."""
        windows: set[int] = set()
        for mask in masks:
            windows.update((mask.nonzero()[0] + self._plan.first).tolist())
        return to_ranges(windows)


def prove_published(config: Config, replay_id: str, words: str) -> str:
    """Checks that the published tables equal a replay, and returns a sentence about it.

    Raises:
        RewindowError: they differ.
    """
    certificate = certify(config, replay_id, "published")
    if not certificate.equal:
        raise RewindowError(
            f'the published output differs from replay "{replay_id}"',
            detail=f"Expected: {words}.",
        )
    return words


def _words(ranges: Sequence[WindowRange]) -> str:
    if not ranges:
        return "none"
    return f"{sum(map(len, ranges)):,} windows {', '.join(map(str, ranges))}"
