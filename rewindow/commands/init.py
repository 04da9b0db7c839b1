"""`rewindow init`: creates a project from a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from rewindow.commands.screen import JobScreen, err, out, print_facts, print_rows
from rewindow.errors import InputError
from rewindow.names import did_you_mean
from rewindow.new_project.columns import Column
from rewindow.new_project.files import OUTPUT, new_files, write_files
from rewindow.new_project.sample import read_sample
from rewindow.new_project.stream import NewStream, changed, propose_stream
from rewindow.progress.steps import watched
from rewindow.sequences import names_of
from rewindow.settings.config import JARS
from rewindow.settings.file import SETTINGS_FILE
from rewindow.spark.jars import missing_jars
from rewindow.version import PACKAGE

_ANSWERS = ("name", "arrived_at", "event_at", "key", "width", "interval", "pattern", "zone")
_COLUMNS_SHOWN = 30
_NAMES_SHOWN = 12


def init(
    path: Annotated[
        Path,
        typer.Argument(
            help="A CSV, JSON lines or Parquet file, a folder of them, or a Delta table."
        ),
    ],
    yes: Annotated[
        bool, typer.Option("--yes", help="Accept all proposed settings without asking.")
    ] = False,
    answers: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Value to use instead of the proposed one, for name, arrived_at, event_at, key, "
            "width, interval, pattern or zone. The command then asks no questions. Repeatable.",
        ),
    ] = None,
) -> None:
    """Create a project in this folder from a sample of a file. The command proposes columns,
    arrival timestamp, event timestamp, key, window width and interval, shows the reason for each,
    and writes rewindow.toml, a first application and a suite for its output. Existing files are not
    overwritten.

    Examples:

        rewindow init clicks.csv

        rewindow init data/orders.jsonl --yes

        rewindow init readings.csv --set arrived_at=received --set key=sensor.id
    """
    folder = Path.cwd()
    _refuse_a_project(folder)
    given = _answers(answers or ())
    if not yes and not given and not sys.stdin.isatty():
        raise InputError(
            "cannot ask questions: standard input is not a terminal",
            hint=f"Accept the proposed settings: rewindow init {path} --yes, or set them with "
            "--set, such as --set arrived_at=COLUMN",
        )
    with watched(JobScreen().line):
        sample = read_sample(path)
    stream = changed(propose_stream(sample, path), **given)
    asks = not yes and not given
    if asks:
        _show(stream)
        stream = _ask(stream)
    jars = _jars(folder)
    files = new_files(stream, folder, jars[0])
    write_files(files)
    # Files first: a reader of the output, such as head, may exit before the output ends.
    if not asks:
        _show(stream)
    for file in files:
        out.print(escape(f"written: {file.relative_to(folder)}"))
    _say_next(stream, has_jars=jars[1])


def _answers(texts: Sequence[str]) -> dict[str, str]:
    """Returns the answers given as NAME=VALUE, keyed by the parameters of `changed`.

    Raises:
        InputError: an answer is not NAME=VALUE, or its name is unknown.
    """
    given = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or name not in _ANSWERS:
            raise InputError(
                f'value "{text}" of --set is not in the form NAME=VALUE with a known name',
                hint=f"{did_you_mean(name, _ANSWERS)}Names: {', '.join(_ANSWERS)}.",
            )
        is_none = name == "key" and value == "none"
        given["arrival" if name == "arrived_at" else name] = "" if is_none else value
    return given


def _refuse_a_project(folder: Path) -> None:
    """Checks that no project exists here, before the first question.

    Raises:
        InputError: this folder has settings, or a variable names other ones.
    """
    if (folder / SETTINGS_FILE).exists():
        raise InputError(
            f'file "{folder / SETTINGS_FILE}" already exists',
            detail="Nothing was written.",
            hint="Use another folder, or add a section [streams.NAME] to the file, as in "
            "docs/tutorial.md.",
        )
    if os.environ.get("REWINDOW_CONFIG"):
        raise InputError(
            f'variable REWINDOW_CONFIG names another project, "{os.environ["REWINDOW_CONFIG"]}"',
            detail="Commands would use that project instead of the new one. Nothing was written.",
            hint="Remove the variable: unset REWINDOW_CONFIG",
        )


def _jars(folder: Path) -> tuple[Path | None, bool]:
    """Returns the folder of Delta's jars if it is not the default of a project, and whether jars
    were found anywhere.
    """
    ours = PACKAGE.parent / JARS
    if not missing_jars(folder / JARS):
        return None, True
    return (ours, True) if not missing_jars(ours) else (None, False)


def _show(stream: NewStream) -> None:
    sample = stream.sample
    out.print(escape(f"read {sample.words} of {sample.path} ({sample.kind})"))
    if sample.misshapen:
        out.print(
            f"{sample.misshapen:,} of them have different columns, and will be moved to quarantine"
        )
    for name in sample.left_out:
        out.print(
            escape(
                f"column {name} is left out: another column has the same name in a different case"
            )
        )
    shown = stream.columns[:_COLUMNS_SHOWN]
    print_rows(
        "",
        ("column", "type", "why"),
        [(column.name, column.kind, column.why) for column in shown],
    )
    if len(stream.columns) > len(shown):
        out.print(
            f"... and {len(stream.columns) - len(shown):,} more columns; {SETTINGS_FILE} lists "
            "all of them"
        )
    _show_choices(stream)


def _show_choices(stream: NewStream) -> None:
    out.print("")
    why = stream.why
    print_facts(
        {
            "stream": stream.name,
            "arrived at": f"{stream.arrival.instant}     ({why['arrived_at']})",
            "event at": f"{stream.event_at.name}     ({why['event_at']})",
            "key": f"{stream.key.name if stream.key else 'none'}     ({why['keys']})",
            "window": f"{stream.width}     ({why['width']})",
            "silent after": f"{stream.interval or 'not monitored'}     ({why['interval']})",
        }
    )
    out.print("")


def _names(columns: Sequence[Column]) -> list[str]:
    return names_of(columns)


_Question = tuple[str, str, Callable[[NewStream], str], Callable[[NewStream], list[str]]]

_QUESTIONS: tuple[_Question, ...] = (
    ("name", "Name of the stream", lambda new: new.name, lambda new: []),
    (
        "arrival",
        "Column of the arrival timestamp",
        lambda new: new.arrival.name,
        lambda new: _names(new.times),
    ),
    ("pattern", "Time format", lambda new: new.arrival.pattern, lambda new: new.patterns),
    ("zone", "Time zone", lambda new: new.zone, lambda new: new.zones),
    (
        "event_at",
        "Column of the event timestamp",
        lambda new: new.event_at.name,
        lambda new: _names(new.times),
    ),
    (
        "key",
        "Key column (a silent key is reported as a gap)",
        lambda new: new.key.name if new.key else "none",
        lambda new: _names(new.keys),
    ),
    ("width", "Window width", lambda new: new.width, lambda new: []),
)  # fmt: skip
"""The questions in order: setting, text, default in brackets, possible answers."""
_ONLY_WITH_CHOICES = ("pattern", "zone")
"""Settings that have a question only if there are several possible answers."""


def _ask(stream: NewStream) -> NewStream:
    """Returns the stream with the answers. After an invalid answer the question is repeated."""
    err.print("Press Enter to accept the value in brackets.", markup=False)
    for setting, words, default, choices in _QUESTIONS:
        names = choices(stream)
        if not names and setting in _ONLY_WITH_CHOICES:
            continue
        listed = (
            f" ({', '.join([*names[:_NAMES_SHOWN], *['...'] * (len(names) > _NAMES_SHOWN)])})"
            if names
            else ""
        )
        none = ", or none" if setting == "key" else ""
        while True:
            answer = typer.prompt(
                f"{words}{listed}{none}",
                default=default(stream),
                err=True,
            ).strip()
            try:
                stream = changed(
                    stream,
                    **{setting: "" if setting == "key" and answer == "none" else answer},
                )
                break
            except InputError as error:
                err.print(str(error), markup=False)
    return stream


def _say_next(stream: NewStream, *, has_jars: bool) -> None:
    application = stream.application
    steps = [] if has_jars else [("rewindow jars", "download Delta's jars, needed once")]
    steps += [
        (f"rewindow record {stream.name} --end", "omit --end if more tuples will arrive"),
        (
            f"rewindow replay {application} --id first",
            f"preview it with: rewindow plan {application}",
        ),
        (
            "rewindow check first && rewindow publish first",
            f"the output is then the stream {application}.{OUTPUT}",
        ),
    ]
    if not stream.sample.rows:
        out.print("The file has no rows yet. When it has some, continue with:")
    else:
        out.print("Next steps:")
    width = max(len(command) for command, _ in steps)
    for command, words in steps:
        out.print(f"    {command:<{width}}   # {words}", markup=False)
