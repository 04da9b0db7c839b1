"""Who started a Spark job: known while it lives, and known to be gone once it was killed."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

JOB = """
    import sys
    from rewindow.processes.identity import Launcher
    launcher = Launcher.of_this_job()
    print(launcher.pid, launcher.is_gone(), flush=True)
    sys.stdin.readline()
    print(launcher.is_gone(), flush=True)
    """
JVM = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]], check=True)"
LAUNCHER = (
    "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1], "
    "sys.argv[2]], check=True)"
)


def test_job_detects_that_its_launcher_was_killed() -> None:
    # The JVM runs between the two processes, and the launcher may be a zombie.
    command = [sys.executable, "-c", LAUNCHER, JVM, textwrap.dedent(JOB)]
    launcher = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert launcher.stdin is not None and launcher.stdout is not None
    assert launcher.stdout.readline() == f"{launcher.pid} False\n"
    launcher.kill()
    os.waitid(
        os.P_PID,
        launcher.pid,
        os.WEXITED | os.WNOWAIT,
    )  # it has ended, and is still to be waited for
    launcher.stdin.write("\n")
    launcher.stdin.flush()
    told = launcher.stdout.readline()
    launcher.wait()
    launcher.stdin.close()
    launcher.stdout.close()
    assert told == "True\n"
