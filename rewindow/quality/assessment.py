"""From what Great Expectations said to what we make of it. The library passes in four ways what it
did not check:

1. An expectation whose class is unknown is dropped from its suite; a suite of one such expectation
   succeeds.
2. A frame of another session is not looked at; the previous one is, under the same view name.
3. So it is when two threads validate at once.
4. An empty frame satisfies nearly every expectation.

So nothing here reads `success` of the whole. Every check of the suite must have come back, by id;
the frame must be the one that was handed over, by fingerprint; it must have as many rows as the
range has windows, and every check that counts rows must have counted all of them; and what raised
has not passed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from rewindow.errors import GateError
from rewindow.loading.suites import Suite
from rewindow.quality.evaluation import Evaluation
from rewindow.quality.outcome import LISTED_MAX, CheckOutcome, CheckStatus
from rewindow.windows import WindowRange, to_ranges


def assess(
    evaluation: Evaluation,
    suite: Suite,
    report: pa.Table,
    windows: WindowRange,
) -> tuple[CheckOutcome, ...]:
    """Returns the outcome of every check, in the suite's order.

    Raises:
        GateError: something of the suite or of the report was not evaluated.
    """
    check_frame(evaluation, suite, report, windows=windows)
    found = {entry["expectation_config"].get("id"): entry for entry in evaluation.result["results"]}
    missing = [entry["meta"]["check"] for key, entry in suite.checks.items() if key not in found]
    if missing or not suite.checks or len(found) != len(evaluation.result["results"]):
        raise GateError(
            f'suite "{suite.name}" was not evaluated in full: {len(found)} of {len(suite.checks)} '
            "checks came back",
            detail=f"Not evaluated: {', '.join(missing) or 'unknown'}.",
        )
    affected = set(report["window_id"].filter(report["affected"].cast(pa.bool_())).to_pylist())
    return tuple(
        _outcome(suite, entry, found[key], len(windows), affected)
        for key, entry in suite.checks.items()
    )


def check_frame(
    evaluation: Evaluation,
    suite: Suite,
    report: pa.Table,
    windows: WindowRange,
) -> None:
    """Refuses an evaluation of anything but the complete report.

    Raises:
        GateError: the report lacks windows, or another frame was evaluated.
    """
    expected = np.arange(windows.first, windows.last + 1)
    if report.num_rows != len(windows) or not np.array_equal(
        report["window_id"].to_numpy(),
        expected,
    ):
        raise GateError(
            f"window report has {report.num_rows} rows, the range {windows} has {len(windows)} "
            "windows"
        )
    seen = (
        (evaluation.result.get("meta") or {})
        .get("batch_markers", {})
        .get("pandas_data_fingerprint")
    )
    if seen is None or seen != evaluation.fingerprint:
        raise GateError(
            f'suite "{suite.name}" was evaluated on another frame than the window report',
            detail=f"Fingerprint of the report {evaluation.fingerprint}, of what was evaluated "
            f"{seen}.",
        )


def _outcome(
    suite: Suite,
    entry: dict[str, Any],
    found: Mapping[str, Any],
    windows: int,
    affected: set[int],
) -> CheckOutcome:
    result = found.get("result") or {}
    kwargs = found["expectation_config"].get("kwargs", {})
    slug = entry["meta"]["check"]
    severity = entry.get("severity", "critical")
    note = ""
    raised = _raised(found.get("exception_info") or {})
    counted = result.get("element_count")
    if not raised and counted is not None and counted != windows:
        raise GateError(
            f'check "{slug}" of suite "{suite.name}" counted {counted} windows of {windows}'
        )
    failing = _failing(result)
    status = _status(found, raised, counted, result=result)
    excused = entry["meta"].get("after_loss") == "warning" and failing and set(failing) <= affected
    if status == "failed" and severity == "critical" and excused:
        severity = "warning"
        note = "only in windows affected by a loss or by a stale start state"
    ranges = to_ranges(failing)
    return CheckOutcome(
        check=slug,
        type=entry["type"],
        column=" and ".join(
            str(kwargs[key]) for key in ("column", "column_A", "column_B") if key in kwargs
        ),
        severity=severity,
        description=entry["description"],
        status=status,
        failing=tuple(ranges[:LISTED_MAX]) if status == "failed" else (),
        failing_windows=len(set(failing)) if status == "failed" else 0,
        observed=_observed(result),
        note=raised or note,
    )


def _status(
    found: Mapping[str, Any],
    raised: str,
    counted: int | None,
    result: Mapping[str, Any],
) -> CheckStatus:
    if raised:
        return "not_run"
    if found.get("success") is not True:
        return "failed"
    if counted is not None and result.get("missing_count") == counted:
        return "nothing_to_check"
    return "passed"


def _raised(info: Mapping[str, Any]) -> str:
    """Returns the first line of what an expectation raised; the entry is flat, or keyed by
    metric.
    """
    entries = [info] if "raised_exception" in info else list(info.values())
    for entry in entries:
        if entry.get("raised_exception"):
            return str(entry.get("exception_message") or "raised").strip().splitlines()[0]
    return ""


def _failing(result: Mapping[str, Any]) -> list[int]:
    rows = result.get("unexpected_index_list") or []
    return [
        int(row["window_id"])
        for row in rows
        if isinstance(row, Mapping) and row.get("window_id") is not None
    ]


def _observed(result: Mapping[str, Any]) -> str:
    if "observed_value" in result:
        return str(result["observed_value"])[:200]
    values = result.get("partial_unexpected_list") or []
    shown = list(map(_number, values[:3]))
    return ", ".join(shown) + (" ..." if len(values) > len(shown) else "")


def _number(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return " against ".join(map(_number, value))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
