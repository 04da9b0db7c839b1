"""The command `rewindow`: registers the verbs and turns errors into messages and exit codes."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from rewindow.commands.pandas_later import leave_pandas_out
from rewindow.errors import InputError, RewindowError
from rewindow.names import did_you_mean
from rewindow.version import VERSION

VERBS = {
    "init": "Start a project in this folder, from a sample file.",
    "record": "Record new tuples of a stream, and seal its windows.",
    "validate": "Report all errors of an application, and show its graph.",
    "check-determinism": "Compute a sample of windows in several ways, and compare the results of "
    "every port.",
    "plan": "Show what a replay would do.",
    "drill": "Kill jobs on purpose, and show the cost of each crash.",
    "replay": "Replay a range of windows into staged tables.",
    "set": "Change a property of an operator while its replay runs.",
    "status": "Show the progress and state of a replay.",
    "list": "List replays.",
    "check": "Check a replay's output against its expectations.",
    "publish": "Make a replay's output visible to readers.",
    "deliver": "Write published windows to a database or to files.",
    "undo": "Undo the newest publication over a range.",
    "repair": "Find published windows whose inputs have changed, and replay them.",
    "abandon": "End a dead replay, and release its range.",
    "certify": "Compare two replays, or a replay and the published windows.",
    "compare": "Run new code on recorded input, and compare it with the recorded output.",
    "gaps": "Report missing windows of a stream, and missing rows and values per key.",
    "latency": "Show the latency of a live run by operator, and its critical path.",
    "play": "Send a recorded stream again, at its recorded pace or at another one.",
    "streams": "List recorded and published streams; inspect, repair or delete one.",
    "why": "Show the history of one window, starting with its recording.",
    "errors": "Count and list the error tuples of a replay.",
    "state": "Show the state that a replay's operators keep between windows.",
    "purge": "Delete staged tables and checkpoints that are no longer needed.",
    "operators": "List the library of operators for applications without code.",
    "jars": "Download Delta's jars. Needed once after an installation.",
    "up": "Start Airflow on this machine.",
    "down": "Stop the Airflow that `up` started.",
    "ledger": "Rebuild a lost ledger from the tables, or upgrade its schema.",
    "demo": "Run a tour of all features on a year of real flights.",
}
"""Verb and its line of help, in the order of use. A verb's module is imported when the verb is
called."""

_UsageError: Any = typer.BadParameter.__base__
"""The exception for a wrong argument: Typer has a copy of click, and does not export this class."""


class _Verbs(TyperGroup):
    """A command group that imports a command's module only when the command is called.

    This makes listing the commands fast.
    """

    _lists = False

    def list_commands(self, ctx: Any) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in VERBS:
            return None
        if self._lists:
            return TyperCommand(cmd_name, help=VERBS[cmd_name])
        name = cmd_name.replace("-", "_")
        module = importlib.import_module(f"rewindow.commands.{name}")
        leave_pandas_out()
        verbs = getattr(module, "app", None)
        if verbs is not None:
            return typer.main.get_command(verbs)
        single = typer.Typer(add_completion=False, rich_markup_mode="markdown")
        single.command(name=cmd_name)(getattr(module, name, None) or module.command)
        return typer.main.get_command(single)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        given = args[0]
        if given in VERBS or given.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        meant = did_you_mean(given, VERBS)
        raise InputError(
            f'verb "{given}" is unknown',
            hint=f"{meant}`rewindow --help` lists all verbs.",
        )

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: Any = None,
        **extra: Any,
    ) -> Any:
        with _usage_in_our_words():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        with _usage_in_our_words():
            return super().invoke(ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        with self._listing():
            super().format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        with self._listing():
            return super().shell_complete(ctx, incomplete)

    @contextmanager
    def _listing(self) -> Iterator[None]:
        """Replaces each command by a stub with its line of help while the commands are listed."""
        self._lists = True
        try:
            yield
        finally:
            self._lists = False


@contextmanager
def _usage_in_our_words() -> Iterator[None]:
    """Turns usage errors of Typer, such as an invalid argument or option, into InputErrors."""
    try:
        yield
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # Not an error: the help is shown.
            raise
        raise _unusable(error) from None


def _unusable(error: Any) -> InputError:
    path = error.ctx.command_path if error.ctx else "rewindow"
    option = getattr(error, "option_name", None)
    if option is not None and error.ctx:
        known: list[str] = []
        for parameter in error.ctx.command.get_params(error.ctx):
            known += [name for name in parameter.opts if name.startswith("-")]
        return InputError(
            f'option "{option}" of `{path}` is unknown',
            hint=f"{did_you_mean(option, known)}{_all(path)}",
        )
    words = error.format_message().rstrip(".").replace(": Value error, ", ": ")
    return InputError(f"{words[:1].lower()}{words[1:]}", hint=_all(path))


def _all(path: str) -> str:
    return f"`{path} -h` lists its arguments and options."


app = typer.Typer(
    cls=_Verbs,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Replay recorded streams from Delta tables by window id, and verify the output.",
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"rewindow {VERSION}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the version and exit.",
            is_eager=True,
            callback=_print_version,
        ),
    ] = False,
) -> None:
    """Replay recorded streams from Delta tables by window id, and verify the output."""
    from rewindow.commands.screen import show_message
    from rewindow.progress.messages import messages_shown

    context.with_resource(messages_shown(show_message))


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and exits, with code 0 only if everything that was
    requested is done.
    """
    try:
        app(
            args=list(arguments) if arguments is not None else None,
            prog_name="rewindow",
            standalone_mode=True,
        )
    except SystemExit:
        raise
    except RewindowError as error:
        _say(error)
        raise SystemExit(error.exit_code) from None
    except BaseException as error:
        from rewindow.storage.failures import library_failure

        failure = library_failure(error)
        if failure is None:
            raise  # A bug: the user needs its traceback.
        _say(failure)
        raise SystemExit(failure.exit_code) from None


def _say(error: Any) -> None:
    sys.stderr.write(f"error: {error}\n")


if __name__ == "__main__":
    main()
