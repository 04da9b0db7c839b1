"""Error tuples: what is stored of a tuple that is emitted on an error port (docs/rules/decisions.md
X14, O68 to O70).

    rejected = rows.where("x < 0").withColumn(REASON, F.lit("null_key")).withColumn(DETAIL, F.lit("x
    is negative"))

An operator may add the columns `POSITION`, `REASON` and `DETAIL` to a frame for an error port; the
port does not declare them. The engine adds the rest, and a reason where there is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import pyarrow as pa

from rewindow.errors import InputError

PREFIX = "_rw_"
"""What the names of columns begin with that are added to tuples; a stream's own columns may not
(X22)."""
POSITION = "_rw_position"
REASON = "_rw_reason"
DETAIL = "_rw_detail"
GIVEN = pa.schema([(POSITION, pa.string()), (REASON, pa.string()), (DETAIL, pa.string())])
"""What an operator may say of an error tuple: where it comes from, why it is one, and more in
words."""
COLUMNS = pa.schema(
    [("_rw_replay", pa.string()), ("_rw_window", pa.int64()), ("_rw_attempt", pa.int64()), *GIVEN],
)
"""Columns of an error table behind those of its port; window and attempt are repeated, for wherever
the tuple goes."""
OF_THE_REPLAY = frozenset(COLUMNS.names) - frozenset(GIVEN.names)
"""Those that say which replay stored the tuple, and so differ between two replays."""
RAISED = "operator_raised"
"""The reason of a tuple at which its operator fails."""
FAILED = ".failed"
"""Suffix of the port that a table of failing tuples has in a plan, after the input port (R93)."""
EMITTED = "emitted"
"""The reason of an error tuple whose operator gave none: it chose to emit it."""
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
"""Columns of a tuple that was fed back: where it came from; the replay names the publication (X15,
X51)."""
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
"""Reasons of the engine and of our operators; docs/error_tuples.md explains them. An operator
may use them, and any other that `check_reasons` accepts."""
_REASON = re.compile("[a-z][a-z0-9_]{0,39}")


def check_reasons(reasons: Iterable[object], port: str) -> None:
    """Refuses reasons that are not a name in lower case, by which error tuples are counted.

    Raises:
        InputError: names the first one.
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
