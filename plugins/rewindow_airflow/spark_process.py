"""Runs one attempt's spark-submit in a separate process group that ends with the task."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
from collections import deque
from collections.abc import Mapping, Sequence

from rewindow.processes.parent_death import dies_with_parent
from rewindow.progress.job_lines import is_for_machines
from rewindow.progress.listener import Listener
from rewindow.progress.messages import pass_on

logger = logging.getLogger(__name__)

_END_SECONDS = 5.0
_EXCEPTION = re.compile(r'^Traceback \(most recent call last\)|Exception in thread "')
_LINES_BEFORE_EXCEPTION = 20
_LINES_SHOWN = 40


class SparkProcess:
    """Runs a command of the launcher.

    Passes its progress to a listener, and logs its other output.

    Args:
        command: the whole spark-submit command.
        environment: the whole environment of the job; Airflow's variables are removed from it.
        listener: receives the progress of the job.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        listener: Listener,
    ) -> None:
        self.command = list(command)
        self.environment = without_airflow(environment)
        self._listener = listener
        self._process: subprocess.Popen[str] | None = None
        self._told_to_end = False
        self._lines: deque[str] = deque(maxlen=_LINES_BEFORE_EXCEPTION)

    def run(self) -> int:
        """Runs the job and returns its exit code, which is negative if a signal ended it."""
        self._process = process = subprocess.Popen(
            self.command,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=dies_with_parent(),
        )
        if self._told_to_end:  # A signal arrived before the process was started.
            self.on_kill()
        assert process.stdout is not None
        try:
            with process.stdout:
                for line in process.stdout:
                    self._take(line.rstrip())
            return process.wait()
        finally:
            self.end_group()

    @property
    def last_lines(self) -> list[str]:
        """The last lines of output.

        After an exception, it has only lines from shortly before the exception.
        """
        return list(self._lines)[-_LINES_SHOWN:]

    def on_kill(self) -> None:
        """Ends the job's whole process group.

        It sends SIGTERM first, so that Spark deletes its local folders.
        """
        self._told_to_end = True
        process = self._process
        if process is None or process.poll() is not None:
            return
        logger.info(f"Ending the Spark job (process group {process.pid})")
        _signal_group(process.pid, signal.SIGTERM)
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            logger.info(f"It did not end within {_END_SECONDS:.0f} s, killing it")
        self.end_group()

    def end_group(self) -> None:
        """Kills the remaining processes of the job's process group.

        A driver's Python can outlive its JVM, and vice versa.
        """
        if self._process is not None:
            _signal_group(self._process.pid, signal.SIGKILL)

    def _take(self, line: str) -> None:
        if line and not is_for_machines(line):
            if _EXCEPTION.search(line) and self._lines.maxlen != _LINES_SHOWN:
                self._lines = deque(maxlen=_LINES_SHOWN)
            self._lines.append(line)
        pass_on(line, self._listener)


def without_airflow(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns an environment without Airflow's variables.

    A job needs none of them, and many are secrets.
    """
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith(("AIRFLOW", "_AIRFLOW"))
    }


def _signal_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return
