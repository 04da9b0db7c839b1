"""Helpers for short sequences of named things, such as streams, ports, fields and files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Protocol, TypeVar

Item = TypeVar("Item")
Key = TypeVar("Key")
Result = TypeVar("Result")


class Named(Protocol):
    """Anything with a name."""

    @property
    def name(self) -> str:
        """The name."""
        ...


NamedItem = TypeVar("NamedItem", bound=Named)


def present(values: Iterable[Item | None]) -> list[Item]:
    """Returns the values that are not None in their original order."""
    return [value for value in values if value is not None]


def find_named(items: Iterable[NamedItem], name: str) -> NamedItem | None:
    """Returns the first item with a given name; None if there is none."""
    return next((item for item in items if item.name == name), None)


def names_of(items: Iterable[Named]) -> list[str]:
    """Returns the names of the given items in their order."""
    return [item.name for item in items]


def excluding(items: Iterable[Item], excluded: Container[Item]) -> list[Item]:
    """Returns the items that are not excluded, in their original order.

    >>> excluding(["a", "b", "c"], {"b"})
    ['a', 'c']
    """
    return [item for item in items if item not in excluded]


def only_named(items: Iterable[NamedItem], names: Container[str]) -> list[NamedItem]:
    """Returns the items whose name is among the given ones, in their order."""
    return [item for item in items if item.name in names]


def not_named(items: Iterable[NamedItem], names: Container[str]) -> list[NamedItem]:
    """Returns the items whose name is not among the given ones, in their order."""
    return [item for item in items if item.name not in names]


def matching_names(names: Iterable[str], lower_case: Container[str]) -> list[str]:
    """Returns the names that, in lower case, are among the given ones.

    >>> matching_names(["Stream", "at"], {"stream"})
    ['Stream']
    """
    return [name for name in names if name.lower() in lower_case]


def repeated_names(names: Iterable[str]) -> list[str]:
    """Returns the names that equal another name if case is ignored, in their original order.

    >>> repeated_names(["at", "key", "AT"])
    ['at', 'AT']
    """
    names = list(names)
    counts = Counter(map(str.lower, names))
    return [name for name in names if counts[name.lower()] > 1]


def quantity(count: int, noun: str) -> str:
    """Returns a count with its noun. The noun is in the plural unless the count is 1.

    >>> quantity(1, "tuple"), quantity(1_032, "window")
    ('1 tuple', '1,032 windows')
    """
    return f"{count:,} {noun}{'s' * (count != 1)}"


def numbered_names(names: Iterable[str], prefix: str) -> dict[str, str]:
    """Returns a technical name for each name: the prefix and the name's index.

    >>> numbered_names(["user", "page"], "_key_")
    {'user': '_key_0', 'page': '_key_1'}
    """
    return {name: f"{prefix}{number}" for number, name in enumerate(names)}


def map_values(function: Callable[[Item], Result], items: Mapping[Key, Item]) -> dict[Key, Result]:
    """Applies a function to each value of a mapping, and returns the results with the same keys.

    >>> map_values(len, {"a": "xy", "b": ""})
    {'a': 2, 'b': 0}
    """
    return {key: function(value) for key, value in items.items()}
