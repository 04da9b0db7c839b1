"""Screen output of the demo: chapters, lines with the time since the start, a spinner on a
terminal.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import PIPE
from types import TracebackType

from rich.console import Console
from rich.markup import escape

from rewindow.errors import RewindowError


class DemoConsole:
    """Prints the progress line by line, with the time since the start in every line."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or _console()
        self._began = time.monotonic()
        self._status = self.console.status("starting") if self.console.is_terminal else None
        self.chapters: list[tuple[str, float]] = []

    def __enter__(self) -> DemoConsole:
        if self._status:
            self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._status:
            self._status.stop()

    @property
    def seconds(self) -> float:
        """The time since the start in seconds."""
        return time.monotonic() - self._began

    @contextmanager
    def chapter(self, name: str, words: str) -> Iterator[None]:
        """Starts a chapter and records its duration."""
        began = time.monotonic()
        self.console.print(f"\n[dim]{self._clock()}[/dim]  [bold]{escape(words)}[/bold]")
        self.doing(words)
        try:
            yield
        finally:
            self.chapters.append((name, round(time.monotonic() - began, 1)))

    def say(self, words: str, style: str = "") -> None:
        """Prints a line."""
        self.console.print(f"[dim]{self._clock()}[/dim]    {escape(words)}", style=style or None)

    def doing(self, words: str) -> None:
        """Shows what the demo waits for next to the spinner. Does nothing without a terminal."""
        if self._status:
            self._status.update(f"[dim]{escape(words)}[/dim]")

    def run(self, *arguments: str) -> str:
        """Runs a command like a user, shows its output, and returns its standard output.

        Raises:
            RewindowError: the command failed; has its message and exit code.
        """
        self.say(
            f"$ rewindow {' '.join(argument for argument in arguments if argument != '--json')}",
            style="cyan",
        )
        command = [sys.executable, "-m", "rewindow.cli", *arguments]
        said: list[str] = []
        with subprocess.Popen(
            command,
            stdout=PIPE,
            stderr=PIPE,
            text=True,
            errors="replace",
        ) as process:
            try:
                text = self._listen(process, said)
            except KeyboardInterrupt:
                process.send_signal(signal.SIGINT)
                process.wait()
                raise
        if process.returncode:
            raise _command_error(arguments, process.returncode, said)
        return text

    def _listen(self, process: subprocess.Popen[str], said: list[str]) -> str:
        assert process.stdout is not None and process.stderr is not None, "both are pipes"
        for line in process.stderr:
            said.append(line.rstrip())
            if said[-1] and not said[-1].startswith("WARNING: Using incubator"):
                self.say(said[-1], style="dim")
        text = process.stdout.read()
        process.wait()
        return text

    def _clock(self) -> str:
        minutes, seconds = divmod(int(self.seconds), 60)
        return f"{minutes:2d}:{seconds:02d}"


def _console() -> Console:
    """Returns the console. Without a terminal, and in CI, it is plain and wide enough for the last
    table.
    """
    plain = bool(os.environ.get("CI")) or not sys.stdout.isatty()
    return Console(
        highlight=False,
        soft_wrap=True,
        force_terminal=False if plain else None,
        width=120 if plain else None,
    )


def _command_error(arguments: tuple[str, ...], code: int, said: list[str]) -> RewindowError:
    lines = [line for line in said if line.strip()]
    start = next(
        (place for place, line in enumerate(lines) if line.startswith("error: ")), len(lines) - 1
    )
    cause = " ".join(line.strip().removeprefix("error: ") for line in lines[start:])
    error = RewindowError(
        f"command `rewindow {' '.join(arguments)}` ended with exit code {code}",
        detail=cause or "The command printed no error message.",
    )
    error.exit_code = code if code > 0 else 65  # type: ignore[misc]
    return error
