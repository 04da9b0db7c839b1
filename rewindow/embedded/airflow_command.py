"""`python -m rewindow.embedded.airflow_command ARGUMENTS` runs Airflow's command line, and exits
without freeing memory.

When an interpreter ends, it frees every object that Airflow has imported, one by one. That added 4
to 6 seconds to `rewindow down` after a component had logged "shut down"; the operating system frees
the memory at once.
"""

from __future__ import annotations

import atexit
import os
import runpy
import sys
import threading
from typing import NoReturn


def main() -> NoReturn:
    """Runs the command to its end, including exit handlers, and exits with its exit code."""
    code = _run()
    threading._shutdown()  # type: ignore[attr-defined]  # What the interpreter does at its end: threads, then atexit.
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def _run() -> int:
    try:
        runpy.run_module("airflow", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    main()
