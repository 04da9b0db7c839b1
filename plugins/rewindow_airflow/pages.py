"""Pages with results: replays, window reports, Data Docs, certificates, and the time of streams.
They require a login to Airflow.

Airflow does not protect a plugin's application. So every route checks the user, and files are
served by a route, because a mount would skip this check. Users who may read the DAG that made a
replay may read its results; see `rights`. A page is rendered on request from ledger and facts, and
no route writes anything.
"""

from __future__ import annotations

import base64
import hashlib
import mimetypes
import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Annotated
from urllib.parse import quote

from airflow.api_fastapi.core_api.security import GetUserDep, get_user
from fastapi import Depends, FastAPI, HTTPException, Query
from fastapi.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse

from rewindow.errors import InputError, RewindowError
from rewindow.location import Location
from rewindow.names import check_replay_id, check_stream
from rewindow.settings.config import Config
from rewindow.version import PACKAGE
from rewindow_airflow import page_html
from rewindow_airflow.rights import OF_STREAMS, refuse_stranger, refuse_without, replays_of

PAGES = "pages"
_FILES = "../../files/"
"""Path from the page of a replay to the files. It is relative, so that it works below any path of
Airflow.
"""
_SCRIPT = base64.b64encode(
    hashlib.sha256((PACKAGE / "pages/templates/page.js").read_bytes()).digest()
).decode()
"""Digest of the only script of the pages. Anything else on them comes from data and must never
run.
"""
_PART_BYTES = 1 << 18
_HEADERS = {
    "Cache-Control": "private, no-cache",
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'self' 'unsafe-inline'; script-src 'sha256-{_SCRIPT}'; "
        "img-src 'self' data:; font-src 'self' data:; connect-src 'none'; form-action 'none'; "
        "base-uri 'none'; frame-ancestors 'self'"
    ),
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "SAMEORIGIN",
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


Results = Annotated[Location, Depends(results)]
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
    )
    app.get("/replays/{replay_id}/page")(show_replay)
    app.get("/replays/{replay_id}/report")(show_report)
    app.get("/replays/{replay_id}/docs")(show_docs)
    app.get("/replays/{replay_id}/certificate")(show_certificate)
    app.get("/streams/{stream}/time")(show_time)
    app.get("/files/{path:path}")(show_file)
    return app


def show_replay(replay_id: ReplayId) -> Response:
    """Redirects to the page of a replay.

    The page is among the result files so that its relative links work.
    """
    return RedirectResponse(f"{_FILES}{PAGES}/{quote(replay_id)}.html", 307, _HEADERS)


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
    if not reports or (output and output not in reports):
        return _not_yet(replay_id, "window report", "The task check_windows writes it.")
    chosen = output or next(iter(reports))
    return HTMLResponse(
        page_html.report(replay_id, list(reports), chosen, reports[chosen], page),
        headers=_HEADERS,
    )


def show_docs(replay_id: ReplayId, folder: Results) -> Response:
    """Redirects to the page of each output, with the verdict, descriptions of the checks, and Data
    Docs.
    """
    return _one_or_list(
        folder,
        checked(folder, replay_id, "*.html"),
        replay_id,
        what="Data Docs",
        writer="The task check_windows",
    )


def show_certificate(replay_id: ReplayId, folder: Results) -> Response:
    """Redirects to the certificates that compare a replay with another side, newest first."""
    pattern = re.compile(
        rf"({re.escape(replay_id)}--.+|.+--{re.escape(replay_id)})-[0-9a-f]{{8}}\.html"
    )
    found = [
        page for page in (folder / "certificates").entries("*.html") if pattern.fullmatch(page.name)
    ]
    found.sort(key=lambda page: page.modified(), reverse=True)
    return _one_or_list(
        folder,
        found,
        replay_id,
        what="certificate",
        writer=f"The command `rewindow certify {replay_id} ...`",
    )


def show_time(stream: StreamName) -> Response:
    """Shows gaps and delays of tuples of a stream from its current tables."""
    from rewindow.pages.time_page import draw_time_page

    try:
        return HTMLResponse(draw_time_page(Config.load(), stream), headers=_HEADERS)
    except RewindowError as error:
        return HTMLResponse(
            page_html.not_yet(stream, "page over time", error.primary, kind="Stream"),
            404,
            _HEADERS,
        )


def show_file(path: str, folder: Results, user: GetUserDep) -> Response:
    """Returns a file in the results folder.

    The page of a replay is rendered from its current state.
    """
    config = Config.load()
    place = PurePosixPath(path)
    replays = replays_of(folder, place)
    if replays is None:
        raise HTTPException(404, "no such file")
    refuse_stranger(config, user, replays)
    if place.parts[:-1] == (PAGES,) and place.suffix == ".html" and replays:
        return _drawn(config, place.stem)
    found = inside(folder, path)
    if found is None:
        raise HTTPException(404, "no such file")
    kind = mimetypes.guess_type(found.name)[0] or "application/octet-stream"
    size = {"Content-Length": str(found.size())}
    return StreamingResponse(_parts(found), media_type=kind, headers=_HEADERS | size)


def _parts(file: Location) -> Iterator[bytes]:
    with file.open() as stream:
        yield from iter(lambda: stream.read(_PART_BYTES), b"")


def _drawn(config: Config, replay_id: str) -> Response:
    from rewindow.pages.replay_page import draw_replay_page

    try:
        return HTMLResponse(draw_replay_page(config, replay_id), headers=_HEADERS)
    except RewindowError as error:
        return HTMLResponse(page_html.not_yet(replay_id, "page", error.primary), 404, _HEADERS)


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
    writer: str,
) -> Response:
    if not found:
        return _not_yet(replay_id, what, f"{writer} writes it.")
    addresses = {path.stem: _FILES + quote(path.relative_to(folder)) for path in found}
    if len(found) == 1:
        return RedirectResponse(next(iter(addresses.values())), 307, _HEADERS)
    return HTMLResponse(page_html.listing(f"{what}: {replay_id}", addresses), headers=_HEADERS)


def _not_yet(replay_id: str, what: str, writer: str) -> Response:
    return HTMLResponse(page_html.not_yet(replay_id, what, writer), 404, _HEADERS)
