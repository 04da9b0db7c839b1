"""Finds the Java 17 that Spark needs: JAVA_HOME, then PATH, then where systems keep their JDKs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from rewindow.errors import ResourceError

JAVA_MAJOR = 17
JAVA_OPTIONS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
"""Variables by which a shell changes every Java that it starts: memory, agents, proxies."""

_KNOWN = ("/usr/lib/jvm/*17*", "/Library/Java/JavaVirtualMachines/*17*/Contents/Home", "/opt/java/*17*")
_VERSION = re.compile(r'version "(\d+)')


@cache
def find_java() -> Path:
    """Returns the home of a Java 17, such that `<home>/bin/java` runs.

    Raises:
        ResourceError: none of the places has one; says which versions were seen.
    """
    seen = []
    for home in dict.fromkeys(_candidates()):
        major = java_major(home)
        if major == JAVA_MAJOR:
            return home
        if major is not None:
            seen.append(f"{home} is Java {major}")
    raise ResourceError(
        f"no Java {JAVA_MAJOR} found in JAVA_HOME or PATH",
        detail=("; ".join(seen) + ".") if seen else "",
        hint=f"Install one (Debian: apt-get install openjdk-{JAVA_MAJOR}-jre-headless) or set JAVA_HOME.",
    )


def java_major(home: Path) -> int | None:
    """Returns the major version of the Java in this folder; None where none runs."""
    binary = home / "bin" / "java"
    if not os.access(binary, os.X_OK):
        return None
    environment = {name: value for name, value in os.environ.items() if name not in JAVA_OPTIONS}
    try:
        answer = subprocess.run(
            [str(binary), "-version"], env=environment, capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(answer.stderr)
    return int(found[1]) if found and answer.returncode == 0 else None


def _candidates() -> Iterator[Path]:
    if named := os.environ.get("JAVA_HOME"):
        yield Path(named)
    if on_path := shutil.which("java"):
        yield Path(on_path).resolve().parent.parent
    for pattern in _KNOWN:
        yield from sorted(Path("/").glob(pattern.removeprefix("/")))


if __name__ == "__main__":
    try:
        print(find_java())
    except ResourceError as error:
        sys.exit(str(error))
