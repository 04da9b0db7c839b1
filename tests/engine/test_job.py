"""How an attempt ended, as the job itself says it."""

from __future__ import annotations

import subprocess
import sys

from rewindow.engine.job import how_it_ended
from rewindow.processes.identity import Launcher, process_identity

BUG = RuntimeError(
    "[INTERNAL_ERROR] You hit a bug in Spark or the Spark plugins you use. SQLSTATE: XX000"
)


def test_attempt_ended_with_its_launcher_reports_this_instead_of_jvm_errors() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    launcher = Launcher(process.pid, process_identity(process.pid))
    assert how_it_ended(BUG, launcher) == ("failed", f"RuntimeError: {BUG}")
    assert how_it_ended(ConnectionRefusedError(), launcher) == (
        "killed",
        "the JVM of the job has ended",
    )
    process.kill()
    process.wait()
    assert process.stdin is not None
    process.stdin.close()
    for error in (BUG, ConnectionRefusedError()):
        end, words = how_it_ended(error, launcher)
        assert (end, "the process that had started this attempt ended" in words) == ("killed", True)
