"""Evaluates a suite on a window report with Great Expectations, and renders the sections of its
Data Docs page.

Only this module depends on the library, so that the library can be replaced without changing the
gate, the report and the findings. It is imported inside functions, because the import takes
seconds. Only one evaluation runs at a time in a process, because the library keeps its context,
plugins and views in global variables.
"""

from __future__ import annotations

import functools
import importlib
import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rewindow.errors import GateError
from rewindow.loading.suites import OURS, Suite

if TYPE_CHECKING:
    import pandas as pd

PROJECT_FILE = "great_expectations.yml"
DATASOURCE = "rewindow"
ASSET = "window_report"
BATCH = "window_range"
_serial = threading.RLock()


@dataclass(frozen=True)
class Evaluation:
    """The result of Great Expectations.

    Attributes:
        result: its result as a dictionary; `assessment.assess` derives the outcomes from it.
        fingerprint: the library's hash of the frame that was passed.
        sections: HTML of its Data Docs sections.
    """

    result: dict[str, Any]
    fingerprint: str
    sections: tuple[str, ...] = ()


def preload() -> threading.Thread:
    """Starts importing the library in a thread. A later import waits for it."""
    thread = threading.Thread(target=_quiet_import, name="import great_expectations", daemon=True)
    thread.start()
    return thread


def evaluate(
    project: Path,
    suite: Suite,
    report: pa.Table,
    parameters: Mapping[str, Any],
    *,
    pages: bool = True,
) -> Evaluation:
    """Evaluates a window report with Great Expectations and returns the result.

    If a folder has no project file, the project file of this package is used.

    Args:
        project: folder of expectations.
        suite: the suite.
        report: the window report.
        parameters: values that expectations use by name.
        pages: whether to render the sections. They are not needed when many damaged copies of an
            output are checked.

    Raises:
        GateError: a plugin cannot be imported, an expectation is unknown or malformed.
    """
    with _serial, _without_copies():
        context = _context(project if (project / PROJECT_FILE).is_file() else OURS)
        _import_plugins(project / "plugins")
        expected = _build(suite)
        frame = to_pandas(report)
        definition = (
            context.data_sources.get(DATASOURCE).get_asset(ASSET).get_batch_definition(BATCH)
        )
        batch = definition.get_batch(batch_parameters={"dataframe": frame})
        form = {
            "result_format": "COMPLETE",
            "unexpected_index_column_names": ["window_id"],
            "return_unexpected_index_query": False,
        }
        result = batch.validate(
            expected,
            result_format=form,
            expectation_parameters=dict(parameters),
        )
        return Evaluation(
            result.to_json_dict(),
            fingerprint(frame),
            _sections(result) if pages else (),
        )


def to_pandas(report: pa.Table) -> pd.DataFrame:
    """Converts a report to a pandas frame.

    Times are in UTC but without a time zone, as the library expects.
    """
    starts = report["starts_at"].cast(pa.timestamp("us"))
    return report.set_column(
        report.column_names.index("starts_at"),
        "starts_at",
        starts,
    ).to_pandas()


def fingerprint(frame: pd.DataFrame) -> str:
    """Returns the hash with which the library identifies an evaluated frame."""
    from great_expectations.execution_engine.pandas_execution_engine import hash_pandas_dataframe

    return str(hash_pandas_dataframe(frame))


@contextmanager
def _without_copies() -> Iterator[None]:
    """Enables pandas' copy-on-write.

    Each check selects the rows without null, which are usually all rows. With a million windows,
    copies of the whole report took half of the time of all checks.
    """
    import pandas as pd

    with pd.option_context("mode.copy_on_write", True):
        yield


def _quiet_import() -> None:
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    logging.getLogger("great_expectations").setLevel(logging.CRITICAL)
    importlib.import_module("great_expectations")


def _context(project: Path) -> Any:
    _quiet_import()
    import great_expectations as gx

    return gx.get_context(mode="file", context_root_dir=str(project))


def _import_plugins(folder: Path) -> None:
    """Imports every module of the plugins folder. The library silently drops expectations whose
    class is not imported.
    """
    if not folder.is_dir():
        return
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    for path in sorted(folder.glob("*.py")):
        try:
            importlib.import_module(path.stem)
        except Exception as error:  # after any exception its checks would be missing
            raise GateError(
                f'plugin "{path.name}" of the expectations cannot be imported: {error!r}'
            ) from error


def _build(suite: Suite) -> Any:
    """Rejects expectations that the library would drop, and returns the library's suite object."""
    from great_expectations.core import ExpectationSuite
    from great_expectations.exceptions import ExpectationNotFoundError
    from great_expectations.expectations.registry import get_expectation_impl

    for entry in suite.expectations:
        slug = entry["meta"]["check"]
        try:
            get_expectation_impl(entry["type"])
        except ExpectationNotFoundError as error:
            raise GateError(
                f'check "{slug}" of suite "{suite.name}" is of the unknown type "{entry["type"]}"',
                hint="Correct the type; custom classes belong in a module of expectations/plugins.",
            ) from error
    try:
        return ExpectationSuite(
            name=suite.name,
            expectations=list(map(dict, suite.expectations)),
        )
    except Exception as error:  # pydantic's errors, of a version that the library picks
        raise GateError(f'suite "{suite.name}" has a malformed expectation: {error}') from error


def _sections(found: Any) -> tuple[str, ...]:
    """Returns the page's sections.

    The overview is left out, because it would repeat the header of our page.
    """
    from great_expectations.render.renderer import ValidationResultsPageRenderer

    document = ValidationResultsPageRenderer().render(found).to_json_dict()
    return tuple(
        _view().render({"section": section, "section_loop": {"index": number}})
        for number, section in enumerate(document["sections"], start=1)
        if section.get("section_name") != "Overview"
    )


@functools.cache
def _view() -> Any:
    """Returns the library's view of a section. It is cached, because each new view compiles its
    templates again.
    """
    from great_expectations.render.view import DefaultJinjaSectionView

    return DefaultJinjaSectionView()
