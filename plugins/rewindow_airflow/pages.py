"""Pages of results behind Airflow's login: window reports, Data Docs, certificates.

Airflow does not protect a plugin's application, so every route carries its own dependency, and files are served by a
route instead of a mount (a mount would pass the dependency by). Who may read DAGs may read these pages.
"""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Annotated

from airflow.api_fastapi.core_api.security import requires_access_dag
from fastapi import Depends, FastAPI, HTTPException
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse, Response

from rewindow.config import Config
from rewindow_airflow.links import PREFIX

_REPLAY_ID = re.compile(r"[A-Za-z0-9_.-]{1,200}")
_HEADERS = {
    "Cache-Control": "private, no-cache",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self' 'unsafe-inline'; script-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; font-src 'self' data:; connect-src 'none'; form-action 'none'; "
        "base-uri 'none'; frame-ancestors 'self'"
    ),
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "SAMEORIGIN",
}
PAGES = {
    "report": ("{id}/report.html", "The task check_windows writes it."),
    "docs": ("{id}/docs/index.html", "The task check_windows writes them."),
    "certificate": ("{id}/certificate.html", "The command `rewindow certify {id} ...` writes it."),
}
"""Page to its file below the results folder, and who writes it."""


def results() -> Path:
    """Returns the folder of results of the settings in force."""
    return Config.load().results.resolve()


Results = Annotated[Path, Depends(results)]


def make_app() -> FastAPI:
    """Returns the application that the plugin mounts below /rewindow; it answers nobody who is not logged in."""
    may_read = Depends(requires_access_dag("GET"))
    app = FastAPI(title="Rewindow", docs_url=None, redoc_url=None, openapi_url=None, dependencies=[may_read])
    app.get("/replays/{replay_id}/{page}")(show_page)
    app.get("/files/{path:path}")(show_file)
    return app


def show_page(replay_id: str, page: str, folder: Results) -> Response:
    """Leads to a page of a replay, or says who will write it."""
    if page not in PAGES or not _REPLAY_ID.fullmatch(replay_id):
        raise HTTPException(404, "no such page")
    pattern, writer = PAGES[page]
    path = pattern.format(id=replay_id)
    if inside(folder, path) is None:
        return HTMLResponse(_not_yet(replay_id, page, writer.format(id=replay_id)), 404, _HEADERS)
    return RedirectResponse(f"{PREFIX}/files/{path}", 307, _HEADERS)


def show_file(path: str, folder: Results) -> Response:
    """Returns a file below the results folder."""
    found = inside(folder, path)
    if found is None:
        raise HTTPException(404, "no such file")
    return FileResponse(found, headers=_HEADERS)


def inside(folder: Path, path: str) -> Path | None:
    """Returns the file of a path below a folder, or None when it is none or leads out of the folder."""
    if "\0" in path:
        return None
    found = (folder / path).resolve()
    return found if found.is_relative_to(folder) and found.is_file() else None


def _not_yet(replay_id: str, page: str, writer: str) -> str:
    replay, what = html.escape(replay_id), html.escape(page)
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>Not there yet</title>"
        "<style>:root{color-scheme:light dark}body{font:16px/1.5 system-ui;margin:4rem auto;max-width:40rem}</style>"
        f"<h1>Not there yet</h1><p>Replay <code>{replay}</code> has no {what}.</p><p>{html.escape(writer)}</p></html>"
    )
