"""Finds the Java 17 that Spark needs: in JAVA_HOME, then on PATH, then in the usual folders of
JDKs.

Also detects shell limits that prevent a JVM from starting or cause it to hang.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from rewindow.errors import InputError, ResourceError

JAVA_MAJOR = 17
JAVA_OPTIONS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
"""Environment variables that change every Java of a shell: memory, agents, proxies."""

OPEN_FILES_MIN = 1024
"""Required by the jars, connections and shuffle files of one local Spark. With 256 it hangs."""

BESIDE_HEAP_BYTES = 5 * 2**29
"""Address space that a JVM reserves in addition to its heap, for classes, code, the class archive
and threads, in bytes.
"""

_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_KNOWN = (
    "/usr/lib/jvm/*17*",
    "/Library/Java/JavaVirtualMachines/*17*/Contents/Home",
    "/opt/java/*17*",
)
_VERSION = re.compile(r'version "(\d+)')


@cache
def find_java() -> Path:
    """Returns the home of a Java 17, which contains `bin/java`.

    Raises:
        ResourceError: none was found; lists the versions that were found.
    """
    seen: list[str] = []
    silent: list[Path] = []
    for home in dict.fromkeys(_candidates()):
        major = java_major(home)
        if major == JAVA_MAJOR:
            return home
        if major is not None:
            seen.append(f"{home} is Java {major}")
        elif os.access(home / "bin" / "java", os.X_OK):
            seen.append(f"the Java of {home} does not start{_limits()}")
            silent.append(home)
    raise ResourceError(
        f"no Java {JAVA_MAJOR} {'starts' if silent else 'found in JAVA_HOME or PATH'}",
        detail=("; ".join(seen) + ".") if seen else "",
        hint="Lift the limits of the shell (ulimit -a), or set JAVA_HOME to another one."
        if silent
        else f"Install one (Debian: apt-get install openjdk-{JAVA_MAJOR}-jre-headless) or set "
        "JAVA_HOME.",
    )


def check_limits(heap: str) -> None:
    """Raises the limit of open files if permitted, and checks that Spark can start with the limits.

    Args:
        heap: size of the JVM's heap in Spark's format, such as "2g".

    Raises:
        ResourceError: too few open files, or too little address space; states the limit and the
            requirement.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < OPEN_FILES_MIN:
        if 0 <= hard < OPEN_FILES_MIN:
            raise ResourceError(
                f"limit of open files must be at least {OPEN_FILES_MIN} for Spark, not {hard}",
                detail="Nothing has been started.",
                hint="Raise it where the shell or the service is set up: ulimit -n "
                f"{OPEN_FILES_MIN}",
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES_MIN, hard))
    space = resource.getrlimit(resource.RLIMIT_AS)[0]
    needed = heap_bytes(heap) + BESIDE_HEAP_BYTES
    if 0 <= space < needed:
        raise ResourceError(
            f"limit of {space / 2**20:.0f} MB of address space is too low, Java needs "
            f"{needed / 2**20:.0f} MB",
            detail=f"This is the heap (spark.driver_memory = {heap}) and the other memory of Java.",
            hint="Lift the limit (ulimit -v unlimited), or set a smaller spark.driver_memory.",
        )


def heap_bytes(text: str) -> int:
    """Converts a size in Spark's format to bytes. A number without a unit is in mebibytes.

    >>> heap_bytes("2g"), heap_bytes("512")
    (2147483648, 536870912)

    Raises:
        InputError: the text is not a size.
    """
    found = re.fullmatch(r"\s*(\d+)\s*([kmgt]?)b?\s*", text.lower())
    if not found:
        raise InputError(
            f'"{text}" is not an amount of memory',
            hint='Use a number and a unit, such as "2g" or "512m".',
        )
    return int(found[1]) * _UNITS[found[2] or "m"]


def _limits() -> str:
    space = resource.getrlimit(resource.RLIMIT_AS)[0]
    return f", under a limit of {space / 2**20:.0f} MB of address space" if space >= 0 else ""


def java_major(home: Path) -> int | None:
    """Returns the major version of the Java in a folder; None if it does not run."""
    binary = home / "bin" / "java"
    if not os.access(binary, os.X_OK):
        return None
    environment = {name: value for name, value in os.environ.items() if name not in JAVA_OPTIONS}
    try:
        answer = subprocess.run(
            [str(binary), "-Xmx32m", "-XX:ErrorFile=/dev/null", "-version"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
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
