"""Converts a result of Great Expectations to check outcomes. The library reports success for checks
that did not run, in four ways:

1. An expectation of an unknown class is dropped from its suite; a suite with only that expectation
  succeeds.
2. A frame of another session is ignored, and the previous frame with the same view name is checked.
3. The same happens when two threads validate at the same time.
4. An empty frame satisfies nearly every expectation.

Therefore this module does not use `success` of the whole result. Every check of the suite must be
in the result, by id; the checked frame must be the one that was passed, by fingerprint; the report
must have one row per window of the range; every check that counts rows must have counted all of
them; and a check that raised an exception has not passed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from rewindow.errors import GateError
from rewindow.loading.suites import Suite
from rewindow.quality.bounds import bounds_of, describe_value
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
        GateError: a part of the suite or of the report was not evaluated.
    """
    check_frame(evaluation, suite, report, windows=windows)
    results = {
        entry["expectation_config"].get("id"): entry for entry in evaluation.result["results"]
    }
    missing = [entry["meta"]["check"] for key, entry in suite.checks.items() if key not in results]
    if missing or not suite.checks or len(results) != len(evaluation.result["results"]):
        raise GateError(
            f'suite "{suite.name}" was not evaluated in full: there are results of '
            f"{len(results)} of {len(suite.checks)} checks",
            detail=f"Not evaluated: {', '.join(missing) or 'unknown'}.",
        )
    affected = set(report["window_id"].filter(report["affected"].cast(pa.bool_())).to_pylist())
    return tuple(
        _outcome(suite, entry, results[key], len(windows), affected)
        for key, entry in suite.checks.items()
    )


def check_frame(
    evaluation: Evaluation,
    suite: Suite,
    report: pa.Table,
    windows: WindowRange,
) -> None:
    """Checks that the complete report was evaluated.

    Raises:
        GateError: the report lacks windows, or another frame was evaluated.
    """
    expected = np.arange(windows.first, windows.last + 1)
    if report.num_rows != len(windows) or not np.array_equal(
        report["window_id"].to_numpy(),
        expected,
    ):
        raise GateError(
            f"window report has {report.num_rows} rows, but range {windows} has {len(windows)} "
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
            detail=f"The fingerprint of the report is {evaluation.fingerprint}, that of the "
            f"evaluated frame {seen}.",
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
        allowed=bounds_of(entry["type"], kwargs).text,
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
    """Returns the first line of an expectation's exception; empty if there is none.

    The entry is flat, or has metrics as keys.
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
    shown = list(map(describe_value, values[:3]))
    return ", ".join(shown) + (" ..." if len(values) > len(shown) else "")
