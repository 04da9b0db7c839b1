"""An Airflow of a few routes, on loopback: it knows one password, hands out tokens, and answers
what a test wants.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from rewindow.embedded import Running

PASSWORD = "open sesame"


class FakeAirflow:
    """Answers by method and path; every call is kept. A token is good until `expire` is called."""

    def __init__(self, folder: Path) -> None:
        self.answers: dict[tuple[str, str], Any] = {}
        self.calls: list[tuple[str, str, Any]] = []
        self._token = 1
        passwords = folder / "passwords.json"
        passwords.write_text(json.dumps({"admin": PASSWORD}))
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.running = Running(f"http://127.0.0.1:{self._server.server_port}", passwords)

    def expire(self) -> None:
        self._token += 1

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, method: str, path: str, body: Any, token: str) -> tuple[int, Any]:
        """Returns status and body of an answer."""
        if path == "/auth/token":
            good = body == {"username": "admin", "password": PASSWORD}
            return (
                (201, {"access_token": f"token-{self._token}"}) if good else (401, {"detail": "no"})
            )
        if token != f"Bearer token-{self._token}":
            return 401, {"detail": "log in"}
        self.calls.append((method, path, body))
        found = self.answers.get((method, path), (404, {"detail": "nothing here"}))
        return found if isinstance(found, tuple) else (200, found)


def _handler(fake: FakeAirflow) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            status, answer = fake.answer(
                self.command,
                self.path,
                body,
                self.headers.get("Authorization", ""),
            )
            text = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PATCH = _serve  # noqa: N815  (names that the base class calls)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler
