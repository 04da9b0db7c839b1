"""Violations of rules by an application, as launch validation reports them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Violation:
    """A rule that an application violates.

    Programs use the rule's number, and reports are sorted by it. It is not part of the message.
    """

    operator: str
    rule: str
    port: str
    value: str
    message: str

    def __init__(
        self,
        rule: str,
        operator: str,
        port: str,
        value: object,
        message: str,
    ) -> None:
        for name, content in (
            ("operator", operator),
            ("rule", rule),
            ("port", port),
            ("value", str(value)),
            ("message", message),
        ):
            object.__setattr__(self, name, content)

    def place(self) -> tuple[object, ...]:
        """Returns the sort key of a violation: operator, then rule number.

        Rules: O60
        """
        return (
            self.operator,
            self.rule[0],
            int(self.rule[1:]),
            self.port,
            self.value,
            self.message,
        )

    def __str__(self) -> str:
        where = ".".join(part for part in (self.operator, self.port) if part)
        return (
            f"{where}: {self.message} ({self.value})" if where else f"{self.message} ({self.value})"
        )
