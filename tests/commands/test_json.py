"""JSON of the verbs: what is a number is one, everywhere."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from rewindow.settings.config import Config
from tests.commands.conftest import Command
from tests.commands.test_looking import FIRST, LAST, seal_windows
from tests.publication.staging import simple

VERBS = (
    ("list",), ("status", "one"), ("why", "one", FIRST), ("gaps", "flights"), ("errors", "one"),
    ("purge",),
    ("certify", "one", "two"),
)  # fmt: skip


def texts(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inside in value.items():
            yield from texts(inside, f"{place}.{key}")
    elif isinstance(value, list):
        for inside in value:
            yield from texts(inside, place)
    elif isinstance(value, str):
        yield place, value


@pytest.mark.parametrize("words", VERBS)
def test_numbers_are_never_strings_in_json(
    command: Command,
    config: Config,
    words: tuple[object, ...],
) -> None:
    # Rules: W14
    seal_windows(config, "flights", range(FIRST, LAST + 1))
    simple(config, "one", FIRST, LAST)
    simple(config, "two", FIRST, LAST)
    _, text, _ = command(*words, "--json")
    numbers = [
        (place, value) for place, value in texts(json.loads(text)) if re.fullmatch(r"-?\d+", value)
    ]
    assert [found for found in numbers if not found[0].endswith("digest")] == []
