"""Processes in a separate pid namespace, like containers that share the host's network."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

_UNSHARE = (
    "unshare",
    *(() if os.getuid() == 0 else ("--user", "--map-root-user")),
    *("--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
)


def run_in_namespace(code: str, *arguments: str, **options: Any) -> str:
    """Runs Python code in another pid namespace under the same host name; returns what it prints.

    The test is skipped where the machine allows no namespaces.
    """
    if subprocess.run([*_UNSHARE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine allows no pid namespaces")
    return subprocess.run(
        [*_UNSHARE, sys.executable, "-c", code, *arguments],
        check=True,
        capture_output=True,
        text=True,
        **options,
    ).stdout
