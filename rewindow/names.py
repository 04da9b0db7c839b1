"""Checks the names of components, streams, suites and replays.

Users enter these names, and they become parts of paths.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rewindow.errors import InputError

POSITION_COLUMNS = ("window_id", "offset")
"""Columns of a stream that contain a tuple's position."""
BOOKKEEPING = (*POSITION_COLUMNS, "attempt")
"""Columns that Rewindow adds to event columns in its tables. Delta treats names that differ only by
case as equal."""
_WINDOWS = ".windows"
_FILES = ".files"
REPLAY_ID_LENGTH_MAX = 110
"""The limit keeps the file name of a certificate, which contains two ids, below 255 bytes."""
PUBLISHED = "published"
COMPONENT = r"[A-Za-z_][A-Za-z0-9_]*"
_COMPONENT = re.compile(COMPONENT)
_STREAM = re.compile(rf"{COMPONENT}(\.{COMPONENT})*")
_FILE_STEM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_REPLAY = re.compile(rf"{_FILE_STEM.pattern}(@{_FILE_STEM.pattern})?")
_COMPONENT_HINT = "Use letters, digits and _, not starting with a digit."
_LENGTH_MAX = 200
_CLOSE = 0.66
"""Smallest similarity (difflib's ratio) at which a name is suggested for a misspelled one."""


def quoted_column(name: str) -> str:
    """Returns a column's name in backticks for Spark, which would read a dot as access to a
    struct's field.

    >>> quoted_column("a.b")
    '`a.b`'
    """
    return "`" + name.replace("`", "``") + "`"


def check_name(kind: str, name: str) -> str:
    """Checks that a component's name has only letters, digits and underscores, and returns it.

    Raises:
        InputError: the name is empty or has other characters.

    Rules: H17
    """
    return _checked(kind, name, _COMPONENT, hint=_COMPONENT_HINT)


def check_stream(name: str) -> str:
    """Checks the name of a stream, or of one of its accompanying tables, and returns it.

    Such a name consists of component names joined by full stops, such as `app.output.windows`.

    Raises:
        InputError: the name is empty, or has other characters.
    """
    return _checked(
        "stream", name, _STREAM, hint=f"{_COMPONENT_HINT} An output is APPLICATION.OUTPUT."
    )


def check_suite(name: str) -> str:
    """Checks the name of a suite, which is the name of its file, and returns it.

    Raises:
        InputError: the name could refer to a file in another folder.
    """
    return _checked(
        "suite", name, _FILE_STEM, hint="Use letters, digits, dots, dashes and underscores."
    )


def check_replay_id(replay_id: str) -> str:
    """Checks the id of a replay or of a container, and returns it.

    Raises:
        InputError: the id cannot be a folder's name, or is a reserved word of the command line.
    """
    wrong = not _REPLAY.fullmatch(replay_id) or len(replay_id) > REPLAY_ID_LENGTH_MAX
    if wrong or replay_id == PUBLISHED:
        raise InputError(
            f'replay id "{_shown(replay_id)}" cannot be used',
            hint="Use letters, digits, dots, dashes and underscores, at most "
            f"{REPLAY_ID_LENGTH_MAX}, starting with a "
            f'letter, a digit or _; not "{PUBLISHED}".',
        )
    return replay_id


def container_id(replay_id: str, container: str) -> str:
    """Returns the id of a container of a replay. `whole_replay` is the inverse function."""
    return f"{replay_id}@{container}"


def whole_replay(replay_id: str) -> str:
    """Returns the id of the replay that a container belongs to. The id of a whole replay is
    returned unchanged.

    >>> whole_replay(container_id("day-1", "totals")), whole_replay("day-1")
    ('day-1', 'day-1')
    """
    return replay_id.partition("@")[0]


def check_whole(replay_id: str) -> str:
    """Checks that an id belongs to a whole replay, and returns it unchanged.

    Raises:
        InputError: the id is that of a container; only whole replays are checked, published or
            undone.
    """
    whole = whole_replay(replay_id)
    if whole != replay_id:
        raise InputError(
            f'"{replay_id}" is a container of replay "{whole}"',
            detail="A replay is checked and published with all of its containers.",
            hint=f"Use the id of the replay: {whole}",
        )
    return replay_id


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """Returns a sentence for a hint that suggests similar names, with a trailing space; empty if no
    name is similar.

    >>> did_you_mean("clikcs", ["clicks", "weather"])
    'Did you mean "clicks"? '
    """
    from difflib import get_close_matches

    names = {name.lower(): name for name in known}
    sought = given.lower()
    beginnings = [low for low in names if sought and low.startswith(sought)]
    close = [
        names[low] for low in (beginnings or get_close_matches(sought, names, cutoff=_CLOSE))[:3]
    ]
    return "Did you mean " + " or ".join(f'"{name}"' for name in close) + "? " if close else ""


def windows_name(stream: str) -> str:
    """Returns the name of the table of a stream's seals, which is in the same folder as the table
    of tuples.
    """
    return f"{stream}{_WINDOWS}"


def files_name(stream: str) -> str:
    """Returns the name of the table of a stream's data files, which is in the same folder as the
    table of tuples.
    """
    return f"{stream}{_FILES}"


def stream_of(table: str) -> str:
    """Returns the stream that a table belongs to.

    >>> stream_of("flights"), stream_of("flights.windows"), stream_of("flights.files")
    ('flights', 'flights', 'flights')
    """
    return table.removesuffix(_WINDOWS).removesuffix(_FILES)


def _checked(kind: str, name: str, allowed: re.Pattern[str], hint: str) -> str:
    if len(name) > _LENGTH_MAX or not allowed.fullmatch(name):
        raise InputError(f'{kind} name "{_shown(name)}" is not allowed', hint=hint)
    return name


def _shown(name: str) -> str:
    """Returns a name in a form that is safe for a message.

    Control characters are replaced, and the length is limited.
    """
    text = "".join(letter if letter.isprintable() else "?" for letter in name)
    return text if len(text) <= _LENGTH_MAX else f"{text[:_LENGTH_MAX]}..."
