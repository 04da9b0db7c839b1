"""Short sequences of named things: streams, ports, fields, files."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Protocol, TypeVar

Item = TypeVar("Item")


class Named(Protocol):
    """Anything with a name."""

    @property
    def name(self) -> str:
        """The name."""
        ...


NamedItem = TypeVar("NamedItem", bound=Named)


def present(values: Iterable[Item | None]) -> list[Item]:
    """Returns the values that are not None, in their order."""
    return [value for value in values if value is not None]


def find_named(items: Iterable[NamedItem], name: str) -> NamedItem | None:
    """Returns the first item of this name, or None."""
    return next((item for item in items if item.name == name), None)


def names_of(items: Iterable[Named]) -> list[str]:
    """Returns the names of some items, in their order."""
    return [item.name for item in items]


def excluding(items: Iterable[Item], excluded: Container[Item]) -> list[Item]:
    """Returns the items that are not among the excluded ones, in their order.

    >>> excluding(["a", "b", "c"], {"b"})
    ['a', 'c']
    """
    return [item for item in items if item not in excluded]
