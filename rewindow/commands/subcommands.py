"""A verb with subcommands: for an unknown one, it suggests a similar one and lists all."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

from rewindow.errors import InputError
from rewindow.names import did_you_mean


class Subcommands(TyperGroup):
    """A group of subcommands of a verb."""

    def meant(self, given: str) -> str:
        """Returns a hint for a word that is not a subcommand but has another known meaning; empty
        by default.
        """
        return ""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        given = args[0]
        known = self.list_commands(ctx)
        if given in known or given.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        listed = f"Subcommands: {', '.join(known)}. `{ctx.command_path} -h` describes them."
        hint = f"{self.meant(given) or did_you_mean(given, known)}{listed}"
        raise InputError(f'subcommand "{given}" of `{ctx.command_path}` is unknown', hint=hint)
