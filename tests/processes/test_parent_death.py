"""Processes that must not outlive their parent: all that hold a pipe are gone when its end is
read.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

ASKED = """
    import os, subprocess, sys
    from rewindow.processes.parent_death import dies_with_parent
    child = "import os, signal, sys; os.write(int(sys.argv[1]), b'r'); signal.pause()"
    command, pipe = [sys.executable, "-c", child, sys.argv[1]], [int(sys.argv[1])]
    subprocess.Popen(command, pass_fds=pipe, start_new_session=True,
        preexec_fn=dies_with_parent()).wait()
    """
WATCHED = """
    import os, signal, subprocess, sys
    child = '''
    import os, signal, sys
    from rewindow.processes.parent_death import end_group_with_parent
    end_group_with_parent()
    if os.fork():
        os.write(int(sys.argv[1]), b"r")
    signal.pause()
    '''
    command = [sys.executable, "-c", __import__("textwrap").dedent(child), sys.argv[1]]
    subprocess.Popen(command, pass_fds=[int(sys.argv[1])], start_new_session=True).wait()
    """


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel is asked on Linux only")
@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "program",
    [ASKED, WATCHED],
    ids=["started by us", "started by another program"],
)
def test_process_ends_if_its_parent_is_killed(program: str) -> None:
    read, write = os.pipe()
    command = [sys.executable, "-c", textwrap.dedent(program), str(write)]
    parent = subprocess.Popen(command, pass_fds=[write])
    os.close(write)
    assert os.read(read, 1) == b"r"
    parent.kill()
    parent.wait()
    assert os.read(read, 1) == b""
    os.close(read)
