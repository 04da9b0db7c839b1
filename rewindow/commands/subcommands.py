"""A verb that has subcommands: an unknown one is answered with what was meant and with those that
there are.
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

from rewindow.errors import InputError
from rewindow.names import did_you_mean


class Subcommands(TyperGroup):
    """The group of a verb's subcommands."""

    def meant(self, given: str) -> str:
        """Returns a hint for a word that is no subcommand, but something else that is known; none
        by default.
        """
        return ""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        given = args[0]
        known = self.list_commands(ctx)
        if given in known or given.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        listed = f"There are: {', '.join(known)}. `{ctx.command_path} -h` says what they do."
        hint = f"{self.meant(given) or did_you_mean(given, known)}{listed}"
        raise InputError(f'subcommand "{given}" of `{ctx.command_path}` is unknown', hint=hint)
