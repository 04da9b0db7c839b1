"""`rewindow drill`: kills the job of a candidate replay on purpose, and shows the cost of a crash.

Each kill has a separate candidate over the same recent windows. The candidate is resumed and
compared with an undisturbed candidate, and its repeated and lost windows are counted. A promise of
a recovery mode is the largest cost of a crash that the mode allows. If a kill breaks a promise, its
candidate and the undisturbed one are kept. All others are deleted.
"""

from __future__ import annotations

import logging
import random
import uuid
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Unpack

from rewindow.application import Mode
from rewindow.candidates.temporary import temporary_replays
from rewindow.certificate import Certificate, certify
from rewindow.certificate.certificate import DIFFERENT
from rewindow.crash import ASSEMBLY, Step
from rewindow.engine.ports import stateful_operators
from rewindow.errors import InputError
from rewindow.inspection.counts import count_replay
from rewindow.launcher.loop import run_attempts
from rewindow.ledger import Ledger
from rewindow.ledger.replays import SAMPLE
from rewindow.names import container_id
from rewindow.planning import create_replay, draft_plan
from rewindow.planning.request import ReplayOptions, ReplayRequest
from rewindow.planning.start_state import newest_published
from rewindow.progress.listener import Listener, Silent
from rewindow.recovery import Candidate, Plan
from rewindow.sequences import excluding, quantity
from rewindow.settings.config import Config

logger = logging.getLogger(__name__)

DRILL_WINDOWS = 60
DRILL_KILLS = 5
GROUPS = 6
"""Number of commit groups of a candidate; smaller if the windows cannot be divided equally."""
_ONCE = (Step.FENCED, Step.RESUMED, Step.JOINED)
"""Steps that an attempt executes once."""
_IN_A_GROUP = (
    Step.STARTED,
    Step.MATERIALISED,
    Step.AFTER_FIRST_OUTPUT,
    Step.AFTER_OUTPUTS,
    Step.AFTER_FACTS,
    Step.AFTER_CHECKPOINT,
)


@dataclass(frozen=True)
class Kill:
    """The point at which a job is killed.

    Attributes:
        step: step of the commit protocol.
        container: name of the container; empty if the replay has only one.
        group: number of the commit group, from 1.
    """

    step: Step
    group: int
    container: str = ""

    @property
    def crash(self) -> str:
        """The crash point in the format of `--crash`; it kills the first attempt."""
        place = f"{self.step.value}:{self.group}@1"
        return f"{self.container}/{place}" if self.container else place


@dataclass(frozen=True)
class KillResult:
    """One kill and its cost.

    Attributes:
        mode: recovery mode of the killed container.
        promised: cost of a crash that the mode allows, as text.
        seen: actual cost, or the ways in which the promise was broken.
        kept: whether the promise was kept.
        seconds: from the kill to the next commit; to the end of the replay if nothing was left to
            commit. None if the job was not killed.
        replay: id of the candidate; it is deleted if the promise was kept.
    """

    mode: str
    container: str
    step: str
    group: int
    promised: str
    seen: str
    kept: bool
    seconds: float | None
    replay: str


@dataclass(frozen=True)
class DrillReport:
    """All kills of a drill.

    Attributes:
        seed: seed of the random choice; the same seed chooses the same kills.
    """

    application: str
    first: int
    last: int
    seed: int
    kills: tuple[KillResult, ...]

    @property
    def kept(self) -> bool:
        """Whether every guarantee was kept."""
        return all(kill.kept for kill in self.kills)

    def to_json(self) -> dict[str, Any]:
        """Returns the report as plain values (docs/json.md)."""
        return {**asdict(self), "kills": [asdict(kill) for kill in self.kills], "kept": self.kept}


def drill(
    config: Config,
    application: str,
    *,
    modes: Sequence[str] = (),
    windows: int = DRILL_WINDOWS,
    kills: int = DRILL_KILLS,
    every_step: bool = False,
    seed: int | None = None,
    listener: Listener | None = None,
    **replay_options: Unpack[ReplayOptions],
) -> DrillReport:
    """Kills candidate replays of recent windows with SIGKILL, and compares each with an undisturbed
    one.

    Args:
        config: current settings.
        application: its name.
        modes: recovery modes of operators without a mode, tested one after the other. By default
            the mode of the replay options.
        windows: number of windows, see `recent_request`.
        kills: number of kills in each mode.
        every_step: kill every container at every step of the commit protocol instead.
        seed: seed for the random choice of steps and groups; by default a new one.
        listener: receives the progress.
        replay_options: see plan.

    Raises:
        InputError: the settings do not allow drills, there are too few windows or kills, or no
            state is published before the windows.
        RewindowError: see plan and replay; the user has stopped it.
    """
    if not config.replay.drills:
        raise InputError(
            "drills are not enabled in this project",
            detail="A drill kills jobs on purpose.",
            hint="Set [replay] drills = true in rewindow.toml, or REWINDOW_REPLAY__DRILLS=true.",
        )
    if windows < GROUPS or kills < 1:
        raise InputError(f"a drill needs at least {GROUPS} windows and one kill")
    told = listener or Silent()
    seed = random.SystemRandom().randrange(1, 10_000) if seed is None else seed
    asked = dict.fromkeys(Mode.parse(mode).name for mode in modes)
    request = recent_request(
        config,
        ReplayRequest(application, **replay_options),
        windows,
    )
    results: list[KillResult] = []
    with temporary_replays(config, f"rewindow drill {application} --seed {seed}") as ids:
        drills = _Drills(config, told, ids)
        drills.reference = drills.run(request).replay_id
        for mode in asked or [request.mode]:
            found = replace(request, mode=mode)
            plan = draft_plan(config, found).plan
            for kill in kills_of(
                plan,
                kills,
                every_step=every_step,
                seed=seed,
            ):
                results.append(drills.kill(found, kill))
    assert request.first is not None and request.last is not None
    return DrillReport(
        application,
        request.first,
        request.last,
        seed,
        kills=tuple(results),
    )


def kills_of(plan: Plan, kills: int, *, every_step: bool, seed: int) -> list[Kill]:
    """Returns the kills of a drill: at random steps, or at every step of every container."""
    source = random.Random(f"{seed} {plan.mode_name}")
    places = [one.name for one in plan.containers] if plan.is_divided else [""]
    groups = -(-len(plan.range) // (plan.group_windows or 1))
    found = []
    for place in places:
        for step in _ONCE:
            found.append(Kill(step, 1, place))
        for step in _IN_A_GROUP:
            found.append(
                Kill(
                    step,
                    source.randint(1, groups),
                    place,
                )
            )
    if plan.is_divided:
        for step in (Step.FENCED, Step.AFTER_OUTPUTS, Step.AFTER_FACTS):
            found.append(Kill(step, 1, ASSEMBLY))
    if every_step:
        return found
    return source.sample(found, kills) if kills <= len(found) else source.choices(found, k=kills)


def recent_request(config: Config, request: ReplayRequest, windows: int) -> ReplayRequest:
    """Returns a request for recent windows of a range, in commit groups of equal size.

    They are the last windows of the range. If the application has a state, they follow the newest
    published state before the last windows.

    Raises:
        InputError: no state in the range is published before the last windows.
    """
    preview = draft_plan(config, request)
    plan = preview.plan
    first = max(plan.first, plan.last - windows + 1)
    has_state = bool(stateful_operators(preview.loaded.app))
    if has_state and first > plan.first and not (request.initial_state or request.state_from):
        published = config.checkpoints_table(request.application)
        versions = preview.loaded.versions(request.checkpoint_windows)
        app = preview.loaded.app
        newest, others = newest_published(published, app, versions, first - 1)
        if newest is None or newest < plan.first - 1:
            detail = "A drill does not compute all windows before its range."
            if others:
                detail = (
                    "The published states were computed by a different version of "
                    f"{', '.join(others)}."
                )
            raise InputError(
                f'no state of application "{request.application}" is published before window '
                f"{first}",
                detail=detail,
                hint="Publish a replay that ends before this window, or use --initial-state.",
            )
        first = newest + 1
    last = min(plan.last, first + windows - 1)
    size = -(-(last - first + 1) // GROUPS)
    return replace(
        request,
        first=first,
        last=last,
        from_time=None,
        to_time=None,
        group_windows=size,
        checkpoint_windows=2 * size,
        candidate=Candidate(drill=True),
        reason=SAMPLE,
    )


@dataclass
class _Drills:
    """Runs and deletes the candidates of one drill."""

    config: Config
    told: Listener
    to_delete: list[str]
    reference: str = ""

    def run(self, request: ReplayRequest, crash: str | None = None) -> Plan:
        """Runs a candidate to its end, and returns its plan."""
        replay_id = f"drill-{uuid.uuid4().hex[:8]}"
        plan = create_replay(self.config, replace(request, replay_id=replay_id))
        self.to_delete.append(replay_id)
        what = f"killed at {crash.removesuffix('@1')}" if crash else "not disturbed"
        logger.info(f"drill: windows {plan.grid.describe(plan.range)}, {plan.mode_words}, {what}")
        run_attempts(
            self.config,
            replay_id,
            self.told,
            crash=crash,
        )
        return plan

    def kill(self, request: ReplayRequest, kill: Kill) -> KillResult:
        """Runs a candidate whose job is killed, and returns the cost of the kill."""
        plan = self.run(request, kill.crash)
        container = plan.containers[0]
        killed = plan.replay_id
        if kill.container not in ("", ASSEMBLY):
            container = plan.container_named(kill.container)
            killed = container_id(killed, kill.container)
        mode = container.mode
        seconds, was_killed = self._recovery(killed)
        certificate = certify(
            self.config,
            self.reference,
            plan.replay_id,
        )
        cost = count_replay(plan, self.config.replay_root(plan.replay_id)).summary()
        size = plan.group_windows or 0
        allowed = {
            "computed again": 0 if mode.may_lose else size,
            "repeated": 2 * size if mode.may_repeat else 0,
            "lost": size if mode.may_lose else 0,
        }
        if mode.may_repeat:
            allowed["computed again"] = 2 * size
        if kill.container == ASSEMBLY:
            allowed = dict.fromkeys(allowed, 0)
        found = {
            "computed again": cost.redone,
            "repeated": cost.repeated,
            "lost": cost.lost,
        }
        broken = _broken(
            plan,
            certificate,
            container.operators if allowed["lost"] else [],
        )
        for what, most in allowed.items():
            if found[what] > most:
                broken.append(f"{quantity(found[what], 'window')} {what}")
        if not was_killed:
            broken.append("the step was not reached, so the job was not killed")
        if not broken:
            logger.info(f"drill: recovered, {_words(found)}")
        else:
            logger.warning(
                f"drill: the guarantee was violated: {'; '.join(broken)}; see replay "
                f"{plan.replay_id}"
            )
            self.to_delete[:] = excluding(self.to_delete, [plan.replay_id, self.reference])
        return KillResult(
            mode.name,
            kill.container,
            kill.step.value,
            kill.group,
            promised=_words(allowed, most="at most "),
            seen="; ".join(broken) or _words(found),
            kept=not broken,
            seconds=seconds,
            replay=plan.replay_id,
        )

    def _recovery(self, replay_id: str) -> tuple[float | None, bool]:
        """Returns the seconds from the kill to the next commit, and whether the first attempt was
        killed.
        """
        attempts = Ledger.open(self.config.ledger_url).attempts
        first, *others = attempts.of(replay_id)
        if not others or first.ended_at is None:
            return None, False
        times = [one.reported_at for one in attempts.timings(replay_id) if one.epoch > first.epoch]
        times += [one.ended_at for one in others if one.ended_at is not None]
        return (min(times) - first.ended_at).total_seconds(), True


def _broken(plan: Plan, certificate: Certificate, losing: Collection[str]) -> list[str]:
    """Returns the differences from the undisturbed candidate that violate a guarantee.

    Args:
        losing: operators that may have lost windows.
    """
    found = []
    upstream = {output.name: output.upstream for output in plan.staged}
    for output in certificate.outputs:
        may_lose = not set(losing).isdisjoint(upstream.get(output.name, ()))
        for kind, count in output.classes.items():
            is_allowed = kind == "equal" or (may_lose and kind in ("lost", "affected"))
            if count and not is_allowed:
                found.append(f"{quantity(count, 'window')} of {output.name} {kind}")
    if certificate.verdict == DIFFERENT and not losing and not found:
        found.append("the state at the end differs")
    return found


def _words(counts: dict[str, int], most: str = "") -> str:
    found = [f"{most}{quantity(count, 'window')} {what}" for what, count in counts.items() if count]
    return ", ".join(found) or "no window computed again, repeated or lost"
