"""Certificates: whether two ranges are equal, and where and how much they differ.

Ranges whose digests agree are compared without reading data: the digests were computed when the
windows were sealed, and the certificate binds them to the versions of the tables. A comparison
changes neither side.

Rules: O137 to O141 (docs/rules/operators.md)
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import starmap
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict  # pydantic does not support that of Python 3.11.

from rewindow.certificate.changes import ChangeTotals
from rewindow.certificate.chosen_outputs import are_two, check_grids, chosen_outputs, shared_outputs
from rewindow.certificate.compare import Difference, OutputResult, WindowResult, compare_output
from rewindow.certificate.description import Description
from rewindow.certificate.lacking import OnlyIn
from rewindow.certificate.rereading import digested_again
from rewindow.certificate.rows import RowComparison
from rewindow.certificate.snapshots import Snapshot, both_snapshots, check_comparable, staged_plan
from rewindow.errors import InputError
from rewindow.names import PUBLISHED
from rewindow.sequences import names_of
from rewindow.settings.config import Config
from rewindow.windows import WindowRange, to_ranges

EQUAL = "equal"
EQUAL_WITHIN_TOLERANCE = "equal within tolerance"
DIFFERENT = "different"
NOT_VERIFIABLE = Difference.NOT_VERIFIABLE.value
"""The verdict if no window differs and some windows are not verifiable.

Rules: R88
"""
STATE = "state"
_STATE_NOTE = "The state after window {} differs from the published one."
TOP_WINDOWS = 10
_CONTENTS = {
    "not read": "not read; only Rewindow has changed the published tables, and their files have "
    "the sizes of then",
    "read where in doubt": "read and digested again where seals were in doubt",
    "read": "all read and digested again",
}
_STAGED = "not read; the digests that were stored with the rows are compared"
_OUTSIDE_DIGEST = ("digest", "made_at", "seconds")


Row = dict[str, Any]
"""A tuple, as a mapping of column to value."""

TopWindow = TypedDict("TopWindow", {"window": int, "class": str, "missing": int, "surplus": int})
"""A window that differs: its class, and the number of rows that each side lacks."""

FirstDifference = TypedDict(
    "FirstDifference",
    {
        "window": int,
        "output": str,
        "operator": str,
        "port": str,
        "class": str,
        "only_in": str | None,
        "rows_a": list[Row],
        "rows_b": list[Row],
    },
)
"""The first window that differs, its class, and up to 20 rows of each side that the other one
lacks.

Rules: O140
"""


class OutputCertificate(BaseModel):
    """The results of a certificate for one output or one error table.

    Attributes:
        windows: number of compared windows; `classes` has their number by class, `ranges` the
            ranges of all that are not equal. A window that neither side has is lost.
        digest_a, digest_b: one digest over all windows' digests of a side.
        only_in_tuples: rows that only one side has, in windows of any class.
        lost_tuples, repeated_tuples: rows of lost windows that b lacks, and rows that b repeats.
        changes: per column, over rows matched by the declared key.
        top_windows: the windows with the most differing rows.
        only_in: windows that only one side has, as ranges.
        affected_from: first window that b computed from a state that lacks lost windows.

    Rules: O139, R14
    """

    name: str
    windows: int
    tuples_a: int
    tuples_b: int
    digest_a: str
    digest_b: str
    classes: dict[str, int]
    ranges: dict[str, list[tuple[int, int]]]
    only_in: dict[str, list[tuple[int, int]]]
    only_in_tuples: OnlyIn = OnlyIn()
    lost_tuples: int
    repeated_tuples: int
    rows_added: int
    rows_removed: int
    rows_changed: int
    equal_within_tolerance: int
    tolerance: float
    changes: dict[str, ChangeTotals]
    top_windows: list[TopWindow]
    affected_from: int | None = None


class Certificate(BaseModel):
    """A statement about two sides, a and b, over a window range.

    `digest` covers all fields except the time of the comparison.

    Attributes:
        application: its name; for two applications, both names.
        same_inputs: whether both sides read the same versions of their inputs; for two
            applications, of the inputs that both read.
        only_in_tuples: rows that only one side has, over all outputs.
        states: windows whose published checkpoint is lost, changed, duplicated or added.
        data_read: whether rows of any window were read.
        contents: "not read" if the seals were trusted because versions, names, sizes and times of
            the published tables' files confirm them; "read where in doubt"; or "read" if everything
            was read.
    """

    model_config = ConfigDict(frozen=True)

    verdict: str
    a: Description
    b: Description
    application: str
    first: int
    last: int
    width_ms: int
    origin_ms: int
    raw: bool
    same_inputs: bool | None
    notes: list[str]
    outputs: list[OutputCertificate]
    only_in_tuples: OnlyIn = OnlyIn()
    first_difference: FirstDifference | None
    states: list[int] = []
    data_read: bool
    contents: str = "not read"
    seconds: float = 0.0
    made_at: str = ""
    digest: str = ""
    path: str = Field(default="", exclude=True)
    page: str = Field(default="", exclude=True)

    @property
    def equal(self) -> bool:
        """Whether every window is equal. Floats are compared within the tolerance."""
        return self.verdict not in (DIFFERENT, NOT_VERIFIABLE)

    @property
    def contents_words(self) -> str:
        """A text that describes whether the contents of files were read."""
        is_published = PUBLISHED in (self.a.name, self.b.name)
        if self.contents == "not read" and not is_published:
            return _STAGED
        return _CONTENTS[self.contents]

    def missing_words(self, tuples: OnlyIn | None = None) -> str:
        """Returns a text with the number of tuples that each side lacks, for one output or for all.

        It contains the names of the sides.
        """
        return (tuples or self.only_in_tuples).words(self.a.name, self.b.name)

    def to_json(self) -> str:
        """Returns the certificate as JSON."""
        return self.model_dump_json(indent=2)


def certify(
    config: Config,
    a: str,
    b: str,
    *,
    tolerance: float | None = None,
    raw: bool = False,
    full: bool = False,
    windows: WindowRange | None = None,
    outputs: Sequence[str] = (),
) -> Certificate:
    """Compares two replays, or a replay with the published tables, and returns the certificate.

    Replays of two applications are compared by the outputs and error tables that both have. The
    notes list these, and the ones that were left out.

    Args:
        config: current settings.
        a, b: replay ids, or "published"; `a` is the reference.
        tolerance: floats are equal when ``|a - b| <= tolerance * max(1, |a|, |b|)``; None for the
            tolerance that each output of `a` declares.
        raw: compare the rows of all attempts, not only those that readers see. This shows the rows
            that at least once repeats.
        full: read all rows and compute their digests again. Rows that do not match their seals make
            the verdict "different", even if both sides were altered in the same way (a published
            file may be a link to the staged one). Otherwise the seals are trusted, unless commits
            of other programs or altered files in the published tables raise doubts. In that case
            the rows in doubt are read.
        windows: compare only these.
        outputs: compare only these outputs and error tables; all if empty.

    Raises:
        InputError: a replay is unknown or was purged; nothing is published in the range (names the
            action that undid it); neither side has a window in the range, or a requested output;
            two applications have no output in common, or different windows.
        TableError: windows must be read and their files are damaged or missing.
    """
    began = time.monotonic()
    if tolerance is not None and not tolerance >= 0:
        raise InputError(f"tolerance of {tolerance} is out of range: it must be at least 0")
    left, right = both_snapshots(
        config, a, b, windows=windows and windows.checked("the certificate")
    )
    on_outputs: list[str] = []
    if outputs:
        (left, right), on_outputs = chosen_outputs(left, right, outputs)
    if are_two(left, right):
        check_grids(staged_plan(config, a), staged_plan(config, b))
        (left, right), on_two = shared_outputs(left, right)
        on_outputs += on_two
    check_comparable(config, left, right)
    (left, right), digested, altered = digested_again(config, (left, right), full)
    # The outputs of the left side replace those of the right, whose order is kept.
    every = {output.name: output for output in [*right.outputs, *left.outputs]}
    for output in right.outputs:
        # One side is enough: the declaration may be newer than the other side.
        outside = output.reads_outside or every[output.name].reads_outside
        every[output.name] = every[output.name].model_copy(update={"reads_outside": outside})
    missing = set(names_of(left.outputs)) ^ set(names_of(right.outputs))
    shared = [output for name, output in every.items() if name not in missing]
    if tolerance is not None:
        shared = [output.model_copy(update={"tolerance": tolerance}) for output in shared]
    results = [compare_output(left, right, output, raw=raw) for output in shared]
    draft = _draft(config, left, right, results, raw)
    if full:
        draft["contents"] = "read"
    elif digested:
        draft["contents"] = "read where in doubt"
    draft["data_read"] = draft["data_read"] or full or bool(digested)
    draft["notes"] = [*on_outputs, *draft["notes"], *digested, *altered]
    if altered or draft["states"]:
        draft["verdict"] = DIFFERENT
    if missing:
        listed = ", ".join(sorted(missing))
        draft["notes"].append(f"Only one side has the outputs or error tables {listed}.")
        draft["verdict"] = DIFFERENT
    draft["seconds"] = round(time.monotonic() - began, 3)
    draft["made_at"] = datetime.now(UTC).isoformat(timespec="seconds")
    certificate = Certificate(**draft)
    return certificate.model_copy(
        update={"digest": certificate_digest(certificate.model_dump(mode="json"))}
    )


def certificate_digest(content: dict[str, Any]) -> str:
    """Returns a digest of a certificate's content, computed from its JSON."""
    covered = {name: value for name, value in content.items() if name not in _OUTSIDE_DIGEST}
    return hashlib.sha256(json.dumps(covered, sort_keys=True, default=str).encode()).hexdigest()


def _draft(
    config: Config,
    left: Snapshot,
    right: Snapshot,
    results: list[OutputResult],
    raw: bool,
) -> dict[str, Any]:
    plan = staged_plan(config, left.name if left.name != PUBLISHED else right.name)
    verdict = EQUAL
    if any(result.differing for result in results):
        verdict = DIFFERENT
    elif any(result.not_verifiable for result in results):
        verdict = NOT_VERIFIABLE
    elif any(result.equal_within_tolerance for result in results):
        verdict = EQUAL_WITHIN_TOLERANCE
    applications = (left.description.application, right.description.application)
    outputs = [_output(left, right, result) for result in results]
    states = [*left.states, *right.states]
    return {
        "verdict": verdict,
        "a": left.description,
        "b": right.description,
        "application": " and ".join(dict.fromkeys(applications)),
        "first": min(left.range.first, right.range.first),
        "last": max(left.range.last, right.range.last),
        "width_ms": plan.width_ms,
        "origin_ms": plan.origin_ms,
        "raw": raw,
        "same_inputs": _same_inputs(left, right),
        "notes": [
            *_notes(left, right, raw),
            *_notes_on_missing(results),
            *_notes_on_outside(results),
            *map(_STATE_NOTE.format, states),
        ],
        "outputs": outputs,
        "only_in_tuples": OnlyIn.sum(output.only_in_tuples for output in outputs),
        "states": states,
        "first_difference": _first_difference(left, right, results, raw) or _first_state(states),
        "data_read": any(result.data_read for result in results) or raw,
    }


def _same_inputs(left: Snapshot, right: Snapshot) -> bool | None:
    one = left.description.inputs
    other = right.description.inputs
    if one is None or other is None:
        return None
    if are_two(left, right):
        shared = one.keys() & other.keys()
        return bool(shared) and all(one[stream] == other[stream] for stream in shared)
    return one == other


def _notes(left: Snapshot, right: Snapshot, raw: bool) -> list[str]:
    notes = []
    if _same_inputs(left, right) is False:
        notes.append("The sides read different versions of their inputs.")
    code = left.description.code_version
    other_code = right.description.code_version
    # Two applications always differ in their code, and published tables do not name one.
    if code and other_code and code != other_code and not are_two(left, right):
        notes.append("The sides were computed by different code.")
    if left.range != right.range:
        notes.append(f"The sides have different ranges: {left.range} and {right.range}.")
    for side in (left, right):
        if side.description.candidate:
            notes.append(f'Replay "{side.name}" is a candidate: {side.description.candidate}.')
        if side.description.ended is False:
            notes.append(f'Replay "{side.name}" has not ended.')
        if side.facts is not None and len(side.data) < len(side.outputs):
            notes.append(
                f'Rows of replay "{side.name}" were purged, so differences are known by digests '
                "only."
            )
        lacking = ", ".join(map(str, side.losses.lacking))
        if lacking:
            notes.append(f'The state of replay "{side.name}" lacks the windows {lacking}.')
        start = side.description.start_state
        if start is not None and start.stale:
            parts = ", ".join(map(str, starmap(WindowRange, start.stale)))
            notes.append(
                f'Replay "{side.name}" started from a state of windows {parts}, which were stale.'
            )
    if raw:
        notes.append("Rows of all attempts were compared; readers see one attempt of each window.")
    return notes


def _notes_on_missing(results: list[OutputResult]) -> list[str]:
    notes = []
    for result in results:
        missing = [window.window for window in result.differing if window.in_neither]
        if missing:
            ranges = ", ".join(map(str, to_ranges(missing)))
            notes.append(f'Neither side has the windows {ranges} of output "{result.output.name}".')
    return notes


def _notes_on_outside(results: list[OutputResult]) -> list[str]:
    notes = []
    for result in results:
        if result.not_verifiable:
            operators = ", ".join(result.output.reads_outside)
            notes.append(
                f'Windows of output "{result.output.name}" are not verifiable, because '
                f"{operators} reads systems outside of Rewindow."
            )
    return notes


def _output(left: Snapshot, right: Snapshot, result: OutputResult) -> OutputCertificate:
    # One pass groups the differing windows by class, and by the only side that has them.
    by_class: dict[Difference, list[WindowResult]] = defaultdict(list)
    by_side: dict[str | None, list[WindowResult]] = defaultdict(list)
    for window in result.differing:
        by_class[window.difference].append(window)
        by_side[window.only_in].append(window)
    classes = {difference.value: len(by_class[difference]) for difference in Difference}
    ranges = {}
    for difference in Difference:
        if by_class[difference]:
            ranges[difference.value] = _ranges(by_class[difference])
    if result.not_verifiable:
        parts = to_ranges(result.not_verifiable)
        ranges[NOT_VERIFIABLE] = [(part.first, part.last) for part in parts]
    classes[NOT_VERIFIABLE] = len(result.not_verifiable)
    different = len(result.differing) + len(result.not_verifiable)
    classes[Difference.EQUAL.value] = result.windows - different
    top = sorted(
        result.differing,
        key=lambda found: (-(found.missing + found.surplus), found.window),
    )[:TOP_WINDOWS]
    name = result.output.name
    return OutputCertificate(
        name=name,
        windows=result.windows,
        tuples_a=result.tuples_a,
        tuples_b=result.tuples_b,
        digest_a=seals_digest(left.output_seals(name)),
        digest_b=seals_digest(right.output_seals(name)),
        classes=classes,
        ranges=ranges,
        only_in={side: _ranges(by_side[side]) for side in ("a", "b") if by_side[side]},
        only_in_tuples=OnlyIn(
            a=sum(window.missing for window in result.differing),
            b=sum(window.surplus for window in result.differing),
            changed=result.rows_changed,
            at_least=result.by_digest,
        ),
        lost_tuples=sum(window.missing for window in by_class[Difference.LOST]),
        repeated_tuples=sum(window.surplus for window in by_class[Difference.REPEATED]),
        rows_added=result.rows_added,
        rows_removed=result.rows_removed,
        rows_changed=result.rows_changed,
        equal_within_tolerance=result.equal_within_tolerance,
        tolerance=result.output.tolerance,
        changes={column: change.totals() for column, change in sorted(result.changes.items())},
        top_windows=[
            {
                "window": window.window,
                "class": window.difference.value,
                "missing": window.missing,
                "surplus": window.surplus,
            }
            for window in top
        ],
        affected_from=right.losses.affected_first.get(name),
    )


def _ranges(windows: list[WindowResult]) -> list[tuple[int, int]]:
    ranges = to_ranges(window.window for window in windows)
    return [(part.first, part.last) for part in ranges]


def seals_digest(seals: pa.Table) -> str:
    """Returns one digest over the windows of an output and their digests.

    It does not depend on how the windows are divided into chunks. It covers one column after the
    other: numbers as 64 bits; for texts, all lengths as 32 bits, then all characters. Null counts
    as the text "null".
    """
    digest = hashlib.sha256()
    for column in seals.columns:
        if pa.types.is_integer(column.type):
            for chunk in column.chunks:
                digest.update(chunk.to_numpy(zero_copy_only=False))
            continue
        for chunk in column.chunks:
            digest.update(
                pc.fill_null(pc.binary_length(chunk), len("null")).to_numpy(zero_copy_only=False)
            )
        for chunk in column.chunks:
            values = pa.concat_arrays(
                [pc.fill_null(chunk, "null")]
            )  # The buffer of a copy starts with its first text.
            digest.update(
                memoryview(values.buffers()[2] or b"")[
                    : pc.sum(pc.binary_length(values)).as_py() or 0
                ]
            )
    return digest.hexdigest()[:32]


def _first_difference(
    left: Snapshot,
    right: Snapshot,
    results: list[OutputResult],
    raw: bool,
) -> FirstDifference | None:
    """Returns the first differing window, with rows of each side.

    The first output in the plan's order that differs is used.

    Rules: O140
    """
    differing = [result for result in results if result.differing]
    if not differing:
        return None
    # If several outputs first differ in the same window, `min` returns the first output.
    result = min(differing, key=lambda result: result.differing[0].window)
    found = result.differing[0]
    rows_a: list[Row] = []
    rows_b: list[Row] = []
    if result.output.name in left.data and result.output.name in right.data:
        rows_a, rows_b = RowComparison(left, right, result.output, raw=raw).sample(found.window)
    return {
        "window": found.window,
        "output": result.output.name,
        "operator": result.output.operator,
        "port": result.output.port,
        "class": found.difference.value,
        "only_in": found.only_in,
        "rows_a": list(map(_plain, rows_a)),
        "rows_b": list(map(_plain, rows_b)),
    }


def _first_state(states: list[int]) -> FirstDifference | None:
    """Returns the first published state that differs, in the same format as a differing window."""
    if not states:
        return None
    return {
        "window": states[0],
        "output": STATE,
        "operator": "",
        "port": "",
        "class": STATE,
        "only_in": None,
        "rows_a": [],
        "rows_b": [],
    }


def _plain(row: Row) -> Row:
    """Converts the values of a row to values that JSON can represent without loss.

    Other values become text.
    """
    return {name: _json_value(value) for name, value in row.items()}


def _json_value(value: object) -> object:
    if value is None or isinstance(value, str | int):
        return value
    # JSON has neither infinity nor NaN.
    return value if isinstance(value, float) and math.isfinite(value) else str(value)
