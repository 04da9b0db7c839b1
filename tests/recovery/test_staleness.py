"""Staleness against a model that carries a state through the windows and knows what was published
when.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewindow.recovery import staleness
from rewindow.recovery.staleness import (
    EffectivePublication,
    EffectiveStretch,
    in_effect,
    stale_windows,
)
from rewindow.windows import WindowRange


def publication(
    number: int,
    first: int,
    last: int,
    states: dict[int, str],
    source: str = "published",
    **more: object,
) -> EffectivePublication:
    """Returns a publication that began with the state published at the window before it."""
    base = (
        {"base": first - 1, "base_digest": states.get(first - 1, "")}
        if source == "published"
        else {}
    )
    return EffectivePublication(
        number,
        WindowRange(first, last),
        states,
        source,
        **{**base, **more},
    )


FIRST = publication(1, 0, 9, {-1: "s", 9: "a"}, "initial")
SECOND = publication(2, 10, 19, {9: "a", 19: "b"})
THIRD = publication(3, 20, 29, {19: "b", 29: "c"})


def test_ranges_started_from_the_published_state_are_not_stale() -> None:
    assert stale_windows([FIRST, SECOND, THIRD]) == []


def test_staleness_of_a_new_range_depends_only_on_overlapping_publications(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A publication a day must not cost more every day.
    cut: list[WindowRange] = []
    outside = staleness._outside

    def noted(segment: EffectiveStretch, windows: WindowRange) -> list[EffectiveStretch]:
        cut.append(windows)
        return outside(segment, windows)

    monkeypatch.setattr(staleness, "_outside", noted)
    days = [publication(day, 10 * day, 10 * day + 9, {}) for day in range(1, 366)]
    assert [stretch.owner.number for stretch in in_effect(days)] == list(range(1, 366))
    assert not cut
    over_two = publication(366, 1005, 1014, {})
    assert len(in_effect([*days, over_two])) == 366
    assert cut == [over_two.range, over_two.range]


def test_changed_final_state_makes_later_windows_stale_until_the_next_replay() -> None:
    fix = publication(4, 0, 9, {-1: "s", 9: "A"}, "initial")
    assert stale_windows([FIRST, SECOND, THIRD, fix]) == [WindowRange(10, 29)]
    assert (
        stale_windows([FIRST, SECOND, THIRD, fix, publication(5, 10, 19, {9: "A", 19: "b"})]) == []
    )
    assert stale_windows(
        [FIRST, SECOND, THIRD, fix, publication(5, 10, 19, {9: "A", 19: "B"})]
    ) == [WindowRange(20, 29)]


def test_replay_with_an_unchanged_final_state_makes_no_windows_stale() -> None:
    assert stale_windows([FIRST, SECOND, publication(3, 0, 9, {-1: "s", 9: "a"}, "initial")]) == []


def test_replay_in_the_middle_is_compared_with_the_saved_state_at_its_end() -> None:
    # If no state was saved there, the later windows are stale.
    whole = publication(1, 0, 29, {-1: "s", 19: "m", 29: "e"}, "initial")
    assert stale_windows([whole, publication(2, 10, 19, {9: "x", 19: "m"})]) == [
        WindowRange(10, 29)
    ]
    known = publication(1, 0, 29, {-1: "s", 9: "x", 19: "m", 29: "e"}, "initial")
    assert stale_windows([known, publication(2, 10, 19, {9: "x", 19: "m"})]) == []
    assert stale_windows([known, publication(2, 10, 19, {9: "x", 19: "other"})]) == [
        WindowRange(20, 29)
    ]
    thinned = publication(1, 0, 29, {-1: "s", 9: "x", 29: "e"}, "initial")
    assert stale_windows([thinned, publication(2, 10, 19, {9: "x", 19: "m"})]) == [
        WindowRange(20, 29)
    ]


def test_republished_windows_do_not_make_the_rest_of_their_replay_stale() -> None:
    whole = publication(1, 0, 29, {-1: "s", 29: "e"}, "initial")
    again = publication(2, 0, 9, {-1: "s", 9: "a"}, "initial", repeats=(1,))
    assert stale_windows([whole, again]) == []
    other = publication(3, 5, 9, {4: "z", 9: "b"}, "initial")
    assert stale_windows([whole, again, other]) == [WindowRange(10, 29)]
    # A state that the older replay has saved decides, whatever a newer one repeats.
    saved = publication(1, 0, 29, {-1: "s", 9: "x", 29: "e"}, "initial")
    assert stale_windows([saved, again]) == [WindowRange(10, 29)]
    part = publication(4, 0, 4, {-1: "s", 4: "q"}, "initial", repeats=(2, 1))
    assert stale_windows([whole, again, part]) == []


def test_staleness_of_a_warm_up_depends_on_its_start_state() -> None:
    whole = publication(1, 0, 29, {-1: "s", 4: "x", 29: "e"}, "initial")
    warmed = EffectivePublication(2, WindowRange(10, 14), {9: "y", 14: "z"}, "warm_up", 4, "x")
    assert stale_windows([whole, warmed]) == [WindowRange(15, 29)], "what follows cannot know"
    far = EffectivePublication(3, WindowRange(40, 49), {39: "q", 49: "r"}, "warm_up", 29, "e")
    assert stale_windows([whole, far]) == []
    assert stale_windows([far]) == [WindowRange(40, 49)]


def test_windows_computed_from_the_initial_state_on_request_are_never_stale() -> None:
    asked = publication(2, 10, 19, {9: "s", 19: "b"}, "initial")
    assert stale_windows([FIRST, asked]) == []
    assert stale_windows([EffectivePublication(3, WindowRange(10, 19), {9: "a"}, "warm_up")]) == []


STEPS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(1, 3), st.booleans()),
    min_size=1,
    max_size=8,
)


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_stale_windows_equal_those_of_a_model_that_recomputes_everything(
    steps: list[tuple[int, int, bool]],
) -> None:
    shown: dict[int, tuple[int, str, str]] = {}
    published: list[EffectivePublication] = []
    for number, (start, width, fixed) in enumerate(steps, start=1):
        first = start
        last = start + width - 1
        if first and first - 1 not in shown:
            continue
        state = shown[first - 1][2] if first else "s"
        states = {first - 1: state}
        for window in range(first, last + 1):
            before = state
            state = f"{state}{'!' if fixed else '.'}{window}"
            states[window] = state
            shown[window] = (number, before, state)
        published.append(
            publication(number, first, last, states, "published" if first else "initial")
        )
    wrong: set[int] = set()
    for window in sorted(shown):
        broken = window and shown[window][1] != shown[window - 1][2]
        if broken or (window - 1 in wrong):
            wrong.add(window)
    found = {window for part in stale_windows(published) for window in part}
    assert found == wrong


def test_newest_publication_of_a_window_is_in_effect() -> None:
    whole = publication(1, 0, 9, {})
    middle = publication(2, 3, 5, {})
    segments = [(str(one.range), one.owner.number) for one in in_effect([middle, whole])]
    assert segments == [("[0, 2]", 1), ("[3, 5]", 2), ("[6, 9]", 1)]
