"""Targets of a playback: standard output, or a reader that connects to a port of this machine."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rewindow.errors import InputError, ResourceError

logger = logging.getLogger(__name__)

HOST = "127.0.0.1"
PORT_MAX = 65_535


class ReaderGone(ConnectionError):
    """Raised if the reader has disconnected after it received `taken` bytes of the current data."""

    def __init__(self, taken: int) -> None:
        super().__init__("the reader closed the connection")
        self.taken = taken


class Receiver(Protocol):
    """Receives bytes.

    It may block while its reader is busy.

    Raises:
        ConnectionError: the reader has disconnected; `ReaderGone` has the number of bytes received.
    """

    def __call__(self, data: bytes, /) -> object:
        """Sends all of the data."""


@contextmanager
def to_stdout() -> Iterator[Receiver]:
    """Yields a target that writes to standard output without Python's buffer.

    A tuple is then visible when it is due.
    """
    sys.stdout.flush()
    number = sys.stdout.fileno()

    yield lambda data: _send(lambda left: os.write(number, left), data)


def _send(write: Callable[[memoryview], int], data: bytes) -> None:
    left = memoryview(data)
    try:
        while left:
            left = left[write(left) :]
    except ConnectionError:
        raise ReaderGone(len(data) - len(left)) from None


@contextmanager
def on_port(port: int) -> Iterator[Receiver]:
    """Listens on a port of this machine only, waits for one reader, and yields the target that
    sends to this reader.

    Args:
        port: port number; 0 selects a free one.

    Raises:
        InputError: the port number is invalid.
        ResourceError: the port is in use, or may not be used.
    """
    if not 0 <= port <= PORT_MAX:
        raise InputError(
            f"port {port} is out of range: it must be 0 to {PORT_MAX}, where 0 selects a free port"
        )
    try:
        server = socket.create_server((HOST, port))
    except OSError as error:
        raise ResourceError(
            f"cannot listen on port {port} of {HOST}: {error.strerror}",
            hint="Choose another port, or 0 for a free port.",
        ) from error
    with server:
        logger.info(f"waiting for a reader on {HOST}:{server.getsockname()[1]}")
        reader, _ = server.accept()
    with reader:
        reader.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield lambda data: _send(reader.send, data)
