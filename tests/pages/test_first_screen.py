"""The picture of the README."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

from rewindow.pages.first_screen import draw_first_screen
from tests.pages.demo_facts import PICTURE, replays

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"


def texts(picture: str) -> list[str]:
    return ["".join(node.itertext()) for node in ElementTree.fromstring(picture).iter(f"{SVG}text")]


def test_readme_picture_is_up_to_date() -> None:
    hint = "python -m tests.pages.demo_facts draws it again"
    assert PICTURE.read_text() == draw_first_screen(replays()), hint


def test_readme_and_site_show_the_picture() -> None:
    assert "(docs/first_screen.svg)" in (ROOT / "README.md").read_text()
    assert "(first_screen.svg)" in (ROOT / "docs/index.md").read_text()


def test_readme_picture_shows_the_outcome_of_a_kill_in_each_mode() -> None:
    shown = texts(draw_first_screen(replays()))
    assert "26.2 s from the kill to the next commit" in shown
    assert "Exactly once: equal to a replay without a kill" in shown
    twice = "1,495 windows staged twice, readers see one"
    assert f"At least once: equal to a replay without a kill; {twice}" in shown
    lost = "1,495 windows lost, and listed; 5,980 computed without them, and marked"
    assert f"At most once: differs from a replay without a kill; {lost}" in shown


def test_picture_can_be_drawn_for_a_replay_without_check_and_certificate() -> None:
    first, *others = replays()
    shown = texts(draw_first_screen([replace(first, gate=None, comparison=None), *others]))
    assert "gate not run" in shown and "Exactly once: " in shown
