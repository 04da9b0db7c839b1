"""Servers on loopback that receive what notifiers send: mail by SMTP and JSON by HTTP."""

from __future__ import annotations

import email
import email.policy
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from aiosmtpd.controller import Controller


@dataclass
class Mailbox:
    """An SMTP server that stores each mail as subject and text."""

    port: int
    mails: list[tuple[str, str]] = field(default_factory=list)

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        mail = email.message_from_bytes(envelope.content, policy=email.policy.default)
        body = mail.get_body()
        assert body is not None
        self.mails.append((str(mail["Subject"]), str(body.get_content())))
        return "250 OK"


@contextmanager
def mailbox() -> Iterator[Mailbox]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        box = Mailbox(probe.getsockname()[1])
    controller = Controller(box, hostname="127.0.0.1", port=box.port)
    controller.start()
    try:
        yield box
    finally:
        controller.stop()


@dataclass
class Webhook:
    """An HTTP server that stores what is posted to it.

    Attributes:
        posts: the posted values, in order.
        status: its answer.
    """

    address: str = ""
    posts: list[dict[str, Any]] = field(default_factory=list)
    status: int = 200


@contextmanager
def webhook() -> Iterator[Webhook]:
    hook = Webhook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            hook.posts.append(posted)
            self.send_response(hook.status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hook.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield hook
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
