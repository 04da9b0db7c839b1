"""Pages with results: replays, window reports, Data Docs, certificates, and the time of streams.
They require a login to Airflow.

Airflow does not protect a plugin's application. So every route checks the user, and files are
served by a route, because a mount would skip this check. Users who may read the DAG that made a
replay may read its results; see `rights`. A page is rendered on request from ledger and facts, and
no route writes anything: buttons start runs of DAGs through Airflow's API.
"""

from __future__ import annotations

import base64
import hashlib
import mimetypes
import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import PurePosixPath
from typing import Annotated, Any
from urllib.parse import quote, urlencode

from airflow.api_fastapi.core_api.security import GetUserDep, get_user
from fastapi import Depends, FastAPI, HTTPException, Query, Request
from fastapi import Path as FromPath
from fastapi.exception_handlers import http_exception_handler
from fastapi.responses import (
    HTMLResponse,
    JSONResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.exceptions import HTTPException as StarletteHTTPException

from rewindow.certificate import certify
from rewindow.errors import InputError, RewindowError
from rewindow.inspection.coverage import read_coverage
from rewindow.inspection.replay_progress import replay_progress
from rewindow.ledger import Ledger, Replay
from rewindow.ledger.replays import RUNNABLE, ReplayState
from rewindow.location import Location
from rewindow.names import PUBLISHED, check_replay_id, check_stream
from rewindow.pages.certificate_page import certificate_page
from rewindow.pages.drawing import SCRIPTS, draw, script, with_live_links
from rewindow.pages.expectation_index import draw_index
from rewindow.pages.overview import overview_lines, overview_strips
from rewindow.pages.replay_page import draw_replay_page
from rewindow.pages.replay_report import LiveParts
from rewindow.pages.trend_page import draw_trend_page
from rewindow.pages.window_page import draw_window_page
from rewindow.recording.inventory import find_stream
from rewindow.settings.config import Config
from rewindow.storage.names import data_name
from rewindow.storage.results import index_page
from rewindow.windows import parse_time
from rewindow_airflow import page_html
from rewindow_airflow.identity import replays_of_run
from rewindow_airflow.links import airflow_path
from rewindow_airflow.page_actions import (
    ON_REPLAY,
    ON_STREAM,
    actions_on_replay,
    actions_on_stream,
)
from rewindow_airflow.rights import (
    BY_HAND,
    OF_STREAMS,
    OVER_TIME,
    dag_that_made,
    dags_of,
    may_read,
    open_ledger,
    refuse_stranger,
    refuse_without,
)

PAGES = "pages"
_FILES = "../../files/"
"""Path from the page of a replay to the files. It is relative, so that it works below any path of
Airflow.
"""
_DIGESTS = []
for _name in SCRIPTS:
    _digest = base64.b64encode(hashlib.sha256(script(_name).encode()).digest()).decode()
    _DIGESTS.append(f"'sha256-{_digest}'")
"""Digests of the scripts of the pages. Anything else on them comes from data and must never run."""
_PART_BYTES = 1 << 18
_HEADERS = {
    "Cache-Control": "private, no-cache",
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'self' 'unsafe-inline'; script-src {' '.join(_DIGESTS)}; "
        "img-src 'self' data:; font-src 'self' data:; connect-src 'self'; form-action 'none'; "
        "base-uri 'none'; frame-ancestors 'self'"
    ),
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "SAMEORIGIN",
}


REPLAYS_MAX = 50
RUN_REPLAYS_MAX = 200
"""Number of replays on a page of the overview."""
_BATCHES_MAX = 40
"""Number of times that the overview reads REPLAYS_MAX replays to find those that the user may see.
"""
_NO_STATE = (
    "The state folder does not exist. If streams were recorded, correct `state` in "
    "rewindow.toml, or REWINDOW_STATE of the API server. Otherwise, record a stream: rewindow "
    "record STREAM"
)
_NO_LEDGER = (
    "There is no ledger, because no replay was planned. Next: start a run of the DAG "
    "replay_windows, or use rewindow replay APPLICATION. If replays exist, correct `ledger` in "
    "rewindow.toml, or REWINDOW_LEDGER of the API server."
)
_NOTICES = {
    "report": "This replay has no window report: the gate has not run, or its results were "
    "deleted. The task check_windows runs the gate.",
    "docs": "This replay has no Data Docs: the gate has not run, or its results were deleted. The "
    "task check_windows runs the gate.",
    "certificate": "This replay has not ended, so there is no certificate yet.",
}


def results() -> Location:
    """Returns the folder of results in the current settings."""
    return Config.load().results.real()


def readable(replay_id: str, user: GetUserDep) -> str:
    """Checks that the user may read a replay, and returns its id, which can be part of a path.

    Raises:
        HTTPException: the id is not valid (404), or the user has no right to the DAG that made the
            replay (403).
    """
    try:
        check_replay_id(replay_id)
    except InputError as error:
        raise HTTPException(404, "no such replay") from error
    refuse_stranger(Config.load(), user, [replay_id])
    return replay_id


def readable_stream(stream: str, user: GetUserDep) -> str:
    """Checks that the user may read a stream, and returns its name.

    Raises:
        HTTPException: the name is not valid (404), or the user has no right to the DAG that reports
            on streams (403).
    """
    refuse_without([OF_STREAMS], user)
    try:
        return check_stream(stream)
    except InputError as error:
        raise HTTPException(404, "no such stream") from error


def opened_ledger() -> Iterator[Ledger | None]:
    """Opens the ledger for one request; None if it does not exist."""
    ledger = open_ledger(Config.load())
    try:
        yield ledger
    finally:
        if ledger is not None:
            ledger.close()


Results = Annotated[Location, Depends(results)]
OpenLedger = Annotated[Ledger | None, Depends(opened_ledger)]
ReplayId = Annotated[str, Depends(readable)]
StreamName = Annotated[str, Depends(readable_stream)]


def make_app() -> FastAPI:
    """Returns the web application that the plugin mounts at /rewindow. It requires a login."""
    logged_in = Depends(get_user)
    app = FastAPI(
        title="Rewindow",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        dependencies=[logged_in],
        exception_handlers={StarletteHTTPException: show_refusal},
    )
    app.get("/overview")(show_overview)
    app.get("/runs")(show_run)
    app.get("/replays/{replay_id}/page")(show_replay)
    app.get("/replays/{replay_id}/progress")(show_progress)
    app.get("/replays/{replay_id}/report")(show_report)
    app.get("/replays/{replay_id}/windows/{window}")(show_window)
    app.get("/replays/{replay_id}/docs")(show_docs)
    app.get("/replays/{replay_id}/certificate")(show_certificate)
    app.get("/streams/{stream}/time")(show_time)
    app.get("/trends/{output}")(show_trend)
    app.get("/files/{path:path}")(show_file)
    return app


async def show_refusal(request: Request, error: Exception) -> Response:
    """Sends a browser without a login to Airflow's login, and from there back to the page. Shows
    other refusals as a page. Other programs get JSON.
    """
    assert isinstance(error, StarletteHTTPException)
    if "text/html" not in request.headers.get("accept", ""):
        return await http_exception_handler(request, error)
    if error.status_code == 401:
        here = "?".join(filter(None, (request.url.path, request.url.query)))
        login = f"{airflow_path()}/api/v2/auth/login?{urlencode({'next': here})}"
        return RedirectResponse(login, 303, _HEADERS)
    return HTMLResponse(
        page_html.refusal(error.status_code, error.detail), error.status_code, _HEADERS
    )


def show_overview(
    folder: Results,
    ledger: OpenLedger,
    user: GetUserDep,
    skip: Annotated[int, Query(ge=0, le=1_000_000_000)] = 0,
    begin: Annotated[str, Query(alias="from", max_length=64)] = "",
    end: Annotated[str, Query(alias="to", max_length=64)] = "",
) -> Response:
    """Shows the windows of streams and outputs along time, and the replays that the user may see,
    newest first.
    """
    config = Config.load()
    may = cache(partial(may_read, user=user))
    values: dict[str, Any] = {"strips": None, "notice": "", "pages": {}, "lines": [], "steps": {}}
    if may(OVER_TIME) and inside(folder, "quality/index.html"):
        values["pages"] = {"Checks over time": "files/quality/index.html"}
    if may(OF_STREAMS):
        coverages = read_coverage(config, ledger)
        replays = {part.replay_id for entry in coverages for part in entry.parts}
        dags = ledger.replays.dags(sorted(replays)) if ledger else {}
        readable = {replay_id for replay_id, dag in dags.items() if may(dag or BY_HAND)}
        try:
            values |= overview_strips(coverages, readable, begin, end)
        except InputError as error:
            values["notice"] = f"{error.primary}. All windows are shown instead."
            values |= overview_strips(coverages, readable)
    if ledger is None:
        values["notice"] = _NO_STATE if not config.state.exists() else _NO_LEDGER
    else:
        rows, older = _visible(ledger, may, skip)
        values["lines"] = overview_lines(config, ledger, rows)
        given = {name: text for name, text in (("from", begin), ("to", end)) if text}
        if skip:
            values["steps"]["newest replays"] = f"?{urlencode(given)}"
        if older is not None:
            values["steps"]["older replays"] = f"?{urlencode({**given, 'skip': older})}#replays"
    return _drawn_overview(**values)


def _drawn_overview(**values: Any) -> Response:
    page = draw("overview.html", **values, airflow=airflow_path())
    return HTMLResponse(page, headers=_HEADERS)


def _visible(
    ledger: Ledger,
    may: Callable[[str], bool],
    skip: int,
) -> tuple[list[Replay], int | None]:
    """Returns the next replays that a user may see, and the number of replays before the following
    ones; None if there are no others.
    """
    rows: list[Replay] = []
    for _ in range(_BATCHES_MAX):
        batch = ledger.replays.newest(limit=REPLAYS_MAX, without_samples=True, skip=skip)
        for row in batch:
            if len(rows) == REPLAYS_MAX:
                return rows, skip
            skip += 1
            if may(dag_that_made(row)):
                rows.append(row)
        if len(batch) < REPLAYS_MAX:
            return rows, None
    return rows, skip


def show_run(dag: str, run: str, ledger: OpenLedger, user: GetUserDep) -> Response:
    """Redirects to the page of the replay of a DAG run, or lists its replays with their progress.

    A run of a backfill has a replay for each step.
    """
    refuse_without([dag], user)
    config = Config.load()
    found = replays_of_run(ledger, dag, run, config.streams) if ledger else []
    if len(found) == 1:
        return RedirectResponse(f"replays/{quote(found[0])}/page", 307, _HEADERS)
    rows = list(map(ledger.replays.get, found)) if ledger else []
    published = sum(row.state is ReplayState.PUBLISHED for row in rows)
    notice = f"Run {run} of DAG {dag} has no replay."
    if ledger and rows:
        notice = f"Run {run}: {published} of {len(rows)} replays are published."
    return _drawn_overview(
        lines=overview_lines(config, ledger, rows[:RUN_REPLAYS_MAX]) if ledger else [],
        strips=None,
        pages={"All replays": "overview"},
        steps={},
        notice=notice,
    )


def show_replay(replay_id: ReplayId) -> Response:
    """Redirects to the page of a replay.

    The page is among the result files so that its relative links work.
    """
    return RedirectResponse(f"{_FILES}{PAGES}/{quote(replay_id)}.html", 307, _HEADERS)


def show_progress(replay_id: ReplayId, ledger: OpenLedger) -> Response:
    """Returns the progress of a replay as JSON, for the script of a page."""
    row = ledger.replays.find(replay_id) if ledger else None
    if ledger is None or row is None:
        raise HTTPException(404, "no such replay")
    return JSONResponse(replay_progress(ledger, row).to_dict(), headers=_HEADERS)


def show_report(
    replay_id: ReplayId,
    folder: Results,
    output: str = "",
    page: Annotated[int, Query(ge=1)] = 1,
) -> Response:
    """Shows the window report of a replay.

    It has one row for every window of the range, even without output.
    """
    reports = {
        path.name.removesuffix(".windows.csv"): path
        for path in checked(folder, replay_id, "*.windows.csv")
    }
    if not reports:
        return _without(replay_id, "report")
    chosen = output or next(iter(reports))
    if chosen not in reports:
        raise HTTPException(404, "no such output")
    text, is_found = page_html.report(replay_id, list(reports), chosen, reports[chosen], page)
    return HTMLResponse(text, 200 if is_found else 404, _HEADERS)


def show_window(
    replay_id: ReplayId,
    window: Annotated[int, FromPath(ge=0)],
    ledger: OpenLedger,
) -> Response:
    """Shows the history of a window of a replay, as `rewindow why` prints it."""
    try:
        if ledger is None:
            raise _unknown(replay_id)
        return HTMLResponse(draw_window_page(Config.load(), replay_id, window), headers=_HEADERS)
    except RewindowError as error:
        return _not_found(replay_id, f"window {window}", error.primary)


def show_docs(replay_id: ReplayId, folder: Results) -> Response:
    """Redirects to the page of each output, with the verdict, descriptions of the checks, and Data
    Docs.
    """
    found = checked(folder, replay_id, "*.html")
    return _one_or_list(folder, found, replay_id, "Data Docs") or _without(replay_id, "docs")


def show_certificate(replay_id: ReplayId, folder: Results, ledger: OpenLedger) -> Response:
    """Compares a replay with the windows that are published now, and shows the certificate, with
    links to the stored ones. Nothing is stored.
    """
    row = ledger.replays.find(replay_id) if ledger else None
    if row is not None and row.state in RUNNABLE:
        return _without(replay_id, "certificate")
    stored = _stored_certificates(folder, replay_id)
    links = {"The replay": "page"}
    for path in stored:
        links[f"Stored: {path.stem}"] = _FILES + quote(path.relative_to(folder))
    try:
        if row is None:
            raise _unknown(replay_id)
        certificate = certify(Config.load(), PUBLISHED, replay_id)
    except RewindowError as error:
        return _one_or_list(folder, stored, replay_id, "certificate") or _not_found(
            replay_id, "certificate", error.primary
        )
    return HTMLResponse(certificate_page(certificate, links), headers=_HEADERS)


def _stored_certificates(folder: Location, replay_id: str) -> list[Location]:
    """Returns the pages of the stored certificates of a replay, newest first."""
    pattern = re.compile(
        rf"({re.escape(replay_id)}--.+|.+--{re.escape(replay_id)})-[0-9a-f]{{8}}\.html"
    )
    found = [
        page for page in (folder / "certificates").entries("*.html") if pattern.fullmatch(page.name)
    ]
    return sorted(found, key=lambda page: page.modified(), reverse=True)


def show_time(stream: StreamName) -> Response:
    """Shows gaps and delays of tuples of a stream from its current tables."""
    from rewindow.pages.time_page import draw_time_page

    config = Config.load()
    try:
        actions = actions_on_stream(find_stream(config, stream))
        live = LiveParts(airflow_path(), dag=ON_STREAM, actions=actions)
        return HTMLResponse(draw_time_page(config, stream, live=live), headers=_HEADERS)
    except RewindowError as error:
        return _not_found(stream, "page over time", error.primary, kind="Stream")


def show_trend(
    output: str,
    user: GetUserDep,
    begin: Annotated[str, Query(alias="from")] = "",
    end: Annotated[str, Query(alias="to")] = "",
) -> Response:
    """Shows the measures of a published output over its windows, or over a range of time."""
    refuse_without([OVER_TIME], user)
    try:
        between_us = (parse_time(begin), parse_time(end)) if begin and end else None
        return HTMLResponse(draw_trend_page(Config.load(), output, between_us), headers=_HEADERS)
    except RewindowError as error:
        return _not_found(output, "trend", error.primary, kind="Output")


def show_file(
    path: str,
    folder: Results,
    ledger: OpenLedger,
    user: GetUserDep,
    missing: str = "",
) -> Response:
    """Returns a file in the results folder.

    The page of a replay and that of all checks are rendered from their current state. If the reader
    has asked for another page that is missing, the page of the replay shows why.
    """
    config = Config.load()
    place = PurePosixPath(path)
    dags = dags_of(config, folder, place)
    if dags is None:
        raise HTTPException(404, "no such file")
    refuse_without(dags, user)
    if place.parts[:-1] == (PAGES,):
        replay_id = place.name.removesuffix(".html")
        try:
            if ledger is None:
                raise _unknown(replay_id)
            live = _live_parts(folder, ledger, replay_id, _NOTICES.get(missing, ""))
            return HTMLResponse(draw_replay_page(config, replay_id, live), headers=_HEADERS)
        except RewindowError as error:
            return _not_found(replay_id, "page", error.primary)
    found = inside(folder, path)
    if found is None:
        raise HTTPException(404, "no such file")
    if found == index_page(config) and ledger is not None:
        # A verdict of an abandoned replay no longer matters, which the file cannot know.
        return HTMLResponse(with_live_links(draw_index(config, ledger)), headers=_HEADERS)
    if place.suffix == ".html":
        return HTMLResponse(with_live_links(found.read_text()), headers=_HEADERS)
    kind = mimetypes.guess_type(found.name)[0] or "application/octet-stream"
    size = {"Content-Length": str(found.size())}
    return StreamingResponse(_parts(found), media_type=kind, headers=_HEADERS | size)


def _parts(file: Location) -> Iterator[bytes]:
    with file.open() as stream:
        yield from iter(lambda: stream.read(_PART_BYTES), b"")


def _live_parts(folder: Location, ledger: Ledger, replay_id: str, notice: str) -> LiveParts:
    """Returns the parts of a replay's page that exist in Airflow. Links lead only to existing
    pages.

    Raises:
        InputError: no replay has this id.
    """
    row = ledger.replays.get(replay_id)
    here = f"../../replays/{quote(replay_id)}"
    links = {"All replays": "../../overview"}
    if checked(folder, replay_id, "*.windows.csv"):
        links["Window report"] = f"{here}/report"
    if checked(folder, replay_id, "*.html"):
        links["Data Docs"] = f"{here}/docs"
    if row.state not in RUNNABLE:
        links["Certificate"] = f"{here}/certificate"
    outputs = row.plan.get("outputs", ()) if row.state is ReplayState.PUBLISHED else ()
    for output in outputs:
        name = data_name(row.application, output["name"])
        links[f"Trend of {output['name']}"] = f"../../trends/{quote(name)}"
    actions = actions_on_replay(ledger, row)
    return LiveParts(airflow_path(), notice, f"{here}/progress", ON_REPLAY, actions, links)


def _unknown(replay_id: str) -> InputError:
    return InputError(f'replay "{replay_id}" does not exist')


def checked(folder: Location, replay_id: str, pattern: str) -> list[Location]:
    """Returns the files that the gate has written for a replay."""
    return (folder / "quality" / "replays" / replay_id).entries(pattern)


def inside(folder: Location, path: str) -> Location | None:
    """Returns the file at a path in a folder; None if it does not exist or is outside of the
    folder.
    """
    if "\0" in path:
        return None
    found = (folder / path).real()
    return found if found.is_below(folder) and found.is_file() else None


def _one_or_list(
    folder: Location,
    found: list[Location],
    replay_id: str,
    what: str,
) -> Response | None:
    """Redirects to the only file, or lists several; None without a file."""
    if not found:
        return None
    addresses = {path.stem: _FILES + quote(path.relative_to(folder)) for path in found}
    if len(found) == 1:
        return RedirectResponse(next(iter(addresses.values())), 307, _HEADERS)
    return HTMLResponse(page_html.listing(f"{what}: {replay_id}", addresses), headers=_HEADERS)


def _without(replay_id: str, missing: str) -> Response:
    """Redirects to the page of a replay, which shows why another page is missing."""
    return RedirectResponse(
        f"{_FILES}{PAGES}/{quote(replay_id)}.html?missing={missing}", 307, _HEADERS
    )


def _not_found(name: str, what: str, why: str, kind: str = "Replay") -> Response:
    return HTMLResponse(page_html.not_found(name, what, why, kind), 404, _HEADERS)
