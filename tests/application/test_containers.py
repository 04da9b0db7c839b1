from __future__ import annotations

import random
from typing import ClassVar

import pytest

from rewindow.application import Application, FrameOperator, InputPort, Mode, OutputPort, PortHandle
from rewindow.application.containers import Container, containers_of, cut_graph
from rewindow.application.modes import MODES, resolve
from tests.application.test_validation import Pass, X, rules

EO, ALO, AMO = Mode.EXACTLY_ONCE, Mode.AT_LEAST_ONCE, Mode.AT_MOST_ONCE
S = PortHandle(None, "s")


class Two(FrameOperator):
    inputs: ClassVar = {"a": InputPort(X), "b": InputPort(X)}
    outputs: ClassVar = {"out": OutputPort(X)}


def chain(*modes: str | None, containers: tuple[str | None, ...] = ()) -> Application:
    """Returns an application of operators a, b, c ... one after the other."""
    app = Application("chain", window="1 hour")
    end = app.input("s")
    names = containers or (None,) * len(modes)
    for place, (mode, container) in enumerate(zip(modes, names, strict=True)):
        end = app.add("abcdef"[place], Pass(), mode=mode, container=container, a=end).default_port()
    app.output("out", end, key=["x"])
    return app


def parts(app: Application, default: Mode = EO) -> list[tuple[str, str, str]]:
    return [
        (one.name, str(one.mode), "".join(one.operators)) for one in containers_of(app, default)
    ]


def test_operators_of_one_mode_share_a_container() -> None:
    # Rules: X53
    assert containers_of(chain(None, "exactly_once", None), EO) == [
        Container("a", EO, ("a", "b", "c"))
    ]


def test_graph_is_split_between_operators_with_different_modes() -> None:
    # Rules: R3, X53
    assert parts(chain("at_least_once", None, "at_most_once")) == [
        ("a", "at_least_once", "a"),
        ("b", "exactly_once", "b"),
        ("c", "at_most_once", "c"),
    ]


def test_graph_is_split_between_operators_with_different_container_names() -> None:
    assert parts(chain(None, None, None, containers=(None, "mid", None))) == [
        ("a", "exactly_once", "a"),
        ("mid", "exactly_once", "b"),
        ("c", "exactly_once", "c"),
    ]


def test_containers_that_would_wait_for_each_other_are_split_up() -> None:
    # A exactly once feeds B at least once and C exactly once; B feeds C.
    app = Application("loop", window="1 hour")
    a = app.add("a", Pass(), a=app.input("s"))
    b = app.add("b", Pass(), mode="at_least_once", a=a)
    app.output("out", app.add("c", Two(), a=a, b=b), key=["x"])
    assert [(one.name, one.operators, one.after) for one in containers_of(app, EO)] == [
        ("a", ("a",), ()),
        ("b", ("b",), ("a",)),
        ("c", ("c",), ("a", "b")),
    ]


def test_unnamed_container_does_not_reuse_the_name_of_another_container() -> None:
    assert parts(chain(None, None, containers=(None, "a"))) == [
        ("a-2", "exactly_once", "a"),
        ("a", "exactly_once", "b"),
    ]


@pytest.mark.parametrize("seed", range(50))
def test_containers_of_random_graphs_are_ordered_and_have_a_single_mode(seed: int) -> None:
    # Rules: X53
    chosen = random.Random(seed)
    names = [f"op{place}" for place in range(chosen.randint(2, 9))]
    sources = {
        name: chosen.sample(names[:place], chosen.randint(0, min(place, 3)))
        for place, name in enumerate(names)
    }
    modes = {name: chosen.choice(list(MODES.values())) for name in names}
    found = cut_graph([[name] for name in names], sources, modes, {})
    assert sorted(name for one in found for name in one.operators) == sorted(names)
    place = {name: one for one in found for name in one.operators}
    for number, one in enumerate(found):
        assert {modes[name] for name in one.operators} == {one.mode}
        fed_by = {place[source].name for name in one.operators for source in sources[name]}
        assert set(one.after) == fed_by - {one.name}
        assert set(one.after) <= {other.name for other in found[:number]}


def test_unset_mode_is_the_default_except_downstream_of_at_most_once() -> None:
    # Rules: X5, X6, R40
    found = resolve({"a": None, "b": AMO, "c": None}, {"b": ["a"], "c": ["b"]}, ALO)
    assert dict(found.modes) == {"a": ALO, "b": AMO, "c": AMO}
    assert found.unset == {"a", "c"}
    assert found.refused == ()


@pytest.mark.parametrize("upstream", MODES.values())
@pytest.mark.parametrize("downstream", MODES.values())
def test_only_at_most_once_operators_may_read_at_most_once_outputs(
    upstream: Mode, downstream: Mode
) -> None:
    # Rules: R39
    found = resolve({"a": upstream, "b": downstream}, {"b": ["a"]}, EO)
    refused = upstream is AMO and downstream is not AMO
    expected = [f"a {upstream.words} -> b {downstream.words}"] if refused else []
    assert list(map(str, found.refused)) == expected


def test_operators_in_one_container_must_have_the_same_mode() -> None:
    # Rules: X53
    app = chain("exactly_once", "at_least_once", containers=("one", "one"))
    assert rules(app) == ["X53"]
    assert rules(chain(None, containers=("no/folder",))) == ["X53"]


def test_container_part_has_its_operators_and_the_ports_read_by_other_parts() -> None:
    # Rules: X53
    app = chain(None, "at_least_once", None)
    part = app.part(["b"])
    assert list(part.nodes) == ["b"]
    assert list(map(str, part.cut_streams())) == ["a.out"]
    assert list(part.outputs) == ["b.out"]
    assert part.whole is app
    assert list(part.streams) == []
    assert list(app.part(["c"]).outputs) == ["out"]
    assert [node.name for node in app.part(["c", "b"]).order()] == ["b", "c"]


def test_cut_stream_has_ended_when_all_its_upstream_streams_have_ended() -> None:
    # Rules: X21
    part = chain(None, "at_least_once").part(["b"])
    assert part.ends({"a.out": 7}) == {"b": 7}
    assert part.ends({"a.out": None}) == {}
