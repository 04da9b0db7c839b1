"""Ranges that a repair replays, on an application in memory: whatever was published and has
changed, all becomes right.

The application is a state and a step, so that what is right is computed window by window from the
first one on.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from rewindow.application import Mode
from rewindow.recovery import Plan, StartState
from rewindow.recovery.staleness import EffectivePublication, in_effect, stale_windows
from rewindow.repairs.ranges import Change, PublishedApplication, PublishedStretch, ranges_to_replay
from rewindow.windows import WindowRange, to_ranges

Step = Callable[[int, int], int]


def forgets(state: int, x: int) -> int:
    """Returns a state in which an even tuple leaves nothing of what was before."""
    return x if x % 2 == 0 else state + x


def keeps(state: int, x: int) -> int:
    return 10 * state + x


@dataclass(frozen=True)
class Replayed:
    number: int
    windows: WindowRange
    start: StartState
    read: tuple[int, ...]
    states: dict[int, int]
    base_state: int

    @property
    def effective(self) -> EffectivePublication:
        digests = {window: str(state) for window, state in self.states.items()}
        base = self.start.window if self.start.taken_from else None
        return EffectivePublication(
            self.number,
            self.windows,
            digests,
            self.start.source,
            base,
            "" if base is None else str(self.base_state),
        )

    @property
    def plan(self) -> Plan:
        return Plan.model_construct(
            replay_id=f"r{self.number}",
            first=self.windows.first,
            last=self.windows.last,
            start=self.start,
            mode=Mode.EXACTLY_ONCE,
            parameters={},
            given=[],
            changes=(),
            application="app",
            code_version="code-1",
            configuration_digest="",
            width_ms=1,
            origin_ms=0,
            checkpoint_windows=1,
            inputs=[],
            outputs=[],
        )


@dataclass
class World:
    step: Step
    inputs: list[int]
    rng: random.Random
    every: int = 0
    publications: list[Replayed] = field(default_factory=list)
    outputs: dict[int, tuple[int, int]] = field(default_factory=dict)
    checkpoints: dict[int, int] = field(default_factory=dict)

    def publish(self, windows: WindowRange) -> None:
        """Replays a range from the state that a plan would find, and publishes it."""
        before = windows.first - 1
        base = max((window for window in self.checkpoints if window <= before), default=-1)
        state = base_state = self.checkpoints.get(base, 0)
        for window in range(base + 1, windows.first):
            state = self.step(state, self.inputs[window])
        if windows.first == 0:
            start = StartState(source="initial", window=-1)
        elif base == before:
            start = StartState(source="published", window=before, taken_from="c")
        else:
            taken_from = "c" if base >= 0 else ""
            start = StartState(
                source="warm_up",
                window=base,
                warm_up_first=base + 1,
                taken_from=taken_from,
            )
        states = {before: state}
        for window in range(windows.first, windows.last + 1):
            self.outputs[window] = (state, self.inputs[window])
            state = self.step(state, self.inputs[window])
            if window == windows.last or self._is_kept(window):
                states[window] = state
        kept = {
            w: s
            for w, s in states.items()
            if w == windows.last or (w > before and self.rng.random() < 0.7)
        }
        self.checkpoints = {
            window: old for window, old in self.checkpoints.items() if window not in windows
        } | kept
        number = len(self.publications) + 1
        self.publications.append(
            Replayed(number, windows, start, tuple(self.inputs), states, base_state)
        )

    def _is_kept(self, window: int) -> bool:
        return window % self.every == 0 if self.every else self.rng.random() < 0.3

    def proposed(self) -> list[tuple[WindowRange, tuple[WindowRange, ...]]]:
        by_number = {one.number: one for one in self.publications}
        effective = [one.effective for one in self.publications]
        known = PublishedApplication(stateful=True)
        changed = []
        for segment in in_effect(effective):
            owner = by_number[segment.owner.number]
            stretch = PublishedStretch(segment.range, owner.plan, frozenset(owner.states))
            known.stretches.append(stretch)
            read = range(stretch.read.first, stretch.read.last + 1)
            differing = [window for window in read if owner.read[window] != self.inputs[window]]
            changed += [Change(part, "changed", stretch) for part in to_ranges(differing)]
        for part in stale_windows(effective):
            changed.append(Change(part, "stale", made_stale_by=len(self.publications[-1].windows)))
        return [
            (part.windows, part.may_follow)
            for part in ranges_to_replay(known, sorted(changed, key=_first))
        ]

    def repair(self) -> list[WindowRange]:
        done: list[WindowRange] = []
        while found := self.proposed():
            (windows, _), *_ = found
            assert windows not in done, "a range that was repaired is to be repaired again"
            assert set(self.outputs).issuperset(range(windows.first, windows.last + 1)), (
                "readers have not seen it"
            )
            base = max(
                (window for window in self.checkpoints if window < windows.first), default=-1
            )
            stale = stale_windows([one.effective for one in self.publications])
            assert not any(base in part for part in stale), (
                "a plan refuses to begin with a stale state"
            )
            self.publish(windows)
            done.append(windows)
        return done

    def wrong(self) -> list[int]:
        """Returns the published windows that are not as if all were computed anew."""
        state = 0
        found = []
        for window, x in enumerate(self.inputs):
            if window in self.outputs and self.outputs[window] != (state, x):
                found.append(window)
            state = self.step(state, x)
        return found


def _first(change: Change) -> WindowRange:
    return change.windows


@pytest.mark.parametrize(
    "seeds",
    [range(300), pytest.param(range(300, 1_500), marks=pytest.mark.long)],
    ids=["short", "long"],
)
@pytest.mark.parametrize("step", [forgets, keeps])
def test_repair_corrects_any_combination_of_publications_and_changes(
    step: Step,
    seeds: range,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Rules: X29, X48
    shorter = 0
    for seed in seeds:
        rng = random.Random(seed)
        monkeypatch.setattr("rewindow.repairs.ranges.JOIN_WINDOWS", rng.choice([0, 0, 2, 1_000]))
        many = rng.randint(1, 24)
        world = World(step, [rng.randint(0, 5) for _ in range(many)], rng)
        for _ in range(rng.randint(1, 6)):
            first = rng.choice([0, rng.randrange(many)])
            world.publish(WindowRange(first, rng.randrange(first, many)))
            if rng.random() < 0.4:
                world.inputs[rng.randrange(many)] = rng.randint(0, 5)
        for _ in range(rng.randint(0, 3)):
            world.inputs[rng.randrange(many)] = rng.randint(0, 5)
        was_wrong = world.wrong()
        done = world.repair()
        assert world.wrong() == [], (seed, done)
        assert world.repair() == []
        shorter += bool(was_wrong) and sum(map(len, done)) < max(world.outputs) - was_wrong[0] + 1
    assert shorter > (2 * len(seeds) // 15 if step is forgets else 0)


def test_repair_of_a_bounded_memory_state_ends_at_the_next_known_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rewindow.repairs.ranges.JOIN_WINDOWS", 0)
    world = World(forgets, [2, 1] * 500, random.Random(1), every=10)
    world.publish(WindowRange(0, 999))
    world.inputs[103] = 3
    assert world.proposed() == [(WindowRange(103, 110), (WindowRange(111, 999),))]
    assert world.repair() == [WindowRange(103, 110)]
    assert world.wrong() == []


def test_repair_range_ends_with_the_visible_windows_of_its_publication() -> None:
    older, newer = (
        Replayed(
            number,
            windows,
            StartState(source="initial", window=windows.first - 1),
            (),
            {},
            0,
        ).plan
        for number, windows in ((1, WindowRange(0, 39)), (2, WindowRange(7, 18)))
    )
    known = PublishedApplication(stateful=True)
    known.stretches = [
        PublishedStretch(WindowRange(0, 6), older, frozenset({10, 39})),
        PublishedStretch(WindowRange(7, 18), newer, frozenset({6, 18})),
        PublishedStretch(WindowRange(19, 39), older, frozenset({10, 39})),
    ]
    (found,) = ranges_to_replay(known, [Change(WindowRange(4, 4), "changed", known.stretches[0])])
    assert found.windows == WindowRange(4, 6)
    assert found.reasons == (
        "changed",
        "its state is passed on, so all windows up to 6 depend on these",
        "if the state after window 6 differs from the published one, at most [19, 39] follow",
    )
    assert found.may_follow == (WindowRange(19, 39),)


def test_publication_from_the_initial_state_is_repaired_from_the_initial_state() -> None:
    plan = Replayed(1, WindowRange(20, 39), StartState(source="initial", window=19), (), {}, 0).plan
    asked = plan.model_copy(update={"options": ["--initial-state"]})
    known = PublishedApplication(stateful=True)
    known.stretches = [PublishedStretch(WindowRange(20, 39), asked, frozenset({30, 39}))]
    (found,) = ranges_to_replay(known, [Change(WindowRange(24, 24), "changed")])
    assert (found.windows, found.may_follow) == (WindowRange(20, 30), (WindowRange(31, 39),))
    assert (
        found.reasons[1]
        == "it started from the initial state on request, so it starts again with window 20"
    )
    assert found.begin.replay_options(found.windows)["initial_state"]
    (after,) = ranges_to_replay(known, [Change(WindowRange(31, 39), "stale", made_stale_by=11)])
    assert after.windows == WindowRange(31, 39)
    assert not after.begin.replay_options(after.windows)["initial_state"]


def test_unbounded_memory_state_is_repaired_in_few_replays_of_growing_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(lambda state, x: state + x, [2, 1] * 500, random.Random(1), every=10)
    world.publish(WindowRange(0, 999))
    with monkeypatch.context() as patch:
        patch.setattr("rewindow.repairs.ranges.JOIN_WINDOWS", 0)
        world.inputs[103] = 3
        done = world.repair()
    assert [(part.first, part.last) for part in done] == [
        (103, 110),
        (111, 130),
        (131, 170),
        (171, 250),
        (251, 410),
        (411, 730),
        (731, 999),
    ]
    assert world.wrong() == []
    world.inputs[103] = 4
    assert world.repair() == [WindowRange(103, 110), WindowRange(111, 999)], (
        "begun again for 1,000 windows or more"
    )
