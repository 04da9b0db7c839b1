"""Columns and reasons of error tuples: tuples that an operator rejects and emits on an error port.

    rejected = rows.where("x < 0").withColumn(REASON, F.lit("null_key")).withColumn(DETAIL, F.lit("x
    is negative"))

An operator may add the columns `POSITION`, `REASON` and `DETAIL` to a frame for an error port; the
port does not declare them. The engine adds the other columns, and a default reason.

Rules: O68 to O70, X14 (docs/rules/decisions.md)
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import pyarrow as pa

from rewindow.errors import InputError

PREFIX = "_rw_"
"""Prefix of the columns that Rewindow adds to tuples; columns of a stream must not start with it
(X22)."""
POSITION = "_rw_position"
REASON = "_rw_reason"
DETAIL = "_rw_detail"
GIVEN = pa.schema([(POSITION, pa.string()), (REASON, pa.string()), (DETAIL, pa.string())])
"""Columns that an operator may set for an error tuple: its position in the source, the reason, and
an explanation."""
COLUMNS = pa.schema(
    [("_rw_replay", pa.string()), ("_rw_window", pa.int64()), ("_rw_attempt", pa.int64()), *GIVEN],
)
"""Columns of an error table after those of its port. They repeat window and attempt, so that a
tuple can be traced when it is copied elsewhere."""
OF_THE_REPLAY = frozenset(COLUMNS.names) - frozenset(GIVEN.names)
"""The columns that identify the replay that stored the tuple, which differ between two replays."""
RAISED = "operator_raised"
"""The reason of a tuple for which its operator raised an exception."""
FAILED = ".failed"
"""Suffix of the port name of a table of failing tuples in a plan; the input port's name precedes it
(R93)."""
EMITTED = "emitted"
"""The default reason of a tuple that an operator emits on an error port without a reason."""
FROM_STREAM = "_rw_from_stream"
FROM_REPLAY = "_rw_from_replay"
FROM_WINDOW = "_rw_from_window"
FROM_OFFSET = "_rw_from_offset"
FROM = pa.schema(
    [
        (FROM_STREAM, pa.string()),
        (FROM_REPLAY, pa.string()),
        (FROM_WINDOW, pa.int64()),
        (FROM_OFFSET, pa.int64()),
    ]
)
"""Columns of a tuple that was fed back, with the position of the error tuple; the replay column has
the publication (X15, X51)."""
REASONS = (
    "null_ts",
    "bad_type",
    "late",
    "far_future",
    "clock_back",
    "jump",
    "boundary_tie",
    "between_windows",
    "null_key",
    "codec_failed",
    RAISED,
    EMITTED,
    "target_rejected",
    "malformed",
    "encoding",
)
"""Reasons of the engine and of the operators in the library, explained in
docs/write_an_operator.md. Operators of users may use them, and any other that `check_reasons`
accepts."""
_REASON = re.compile("[a-z][a-z0-9_]{0,39}")


def check_reasons(reasons: Iterable[object], port: str) -> None:
    """Checks that each reason is a lower-case name, because error tuples are counted by reason.

    Raises:
        InputError: a reason is not such a name; the message has the first one.
    """
    for reason in reasons:
        if not isinstance(reason, str) or not _REASON.fullmatch(reason):
            raise InputError(
                f'reason {reason!r} of an error tuple on port "{port}" is not a name of lower-case '
                "letters, digits and _, at most 40",
                hint=f"Use one of {', '.join(REASONS)}, or a name such as unknown_country; the "
                "values belong in the detail.",
            )


def error_columns(port: pa.Schema) -> pa.Schema:
    """Returns the columns of the error tuples of a port."""
    return pa.schema([*port, *COLUMNS])
