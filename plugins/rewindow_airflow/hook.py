"""Submits one attempt with the Spark provider's hook, in a process group of its own that dies with the task."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk.exceptions import AirflowException

from rewindow_airflow.progress import Progress, is_for_machines, parse_progress

_PR_SET_PDEATHSIG = 1
_END_SECONDS = 5.0
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform.startswith("linux") else None


class RewindowSparkHook(SparkSubmitHook):
    """Runs a command that the launcher made, and tells what the job prints.

    Args:
        command: the whole spark-submit command.
        environment: the whole environment of the job; all that is Airflow's is taken out of it.
        on_progress: told each progress line; every other line goes to the task's log.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        on_progress: Callable[[Progress], None],
        conn_id: str = "rewindow_spark",
    ) -> None:
        super().__init__(conn_id=conn_id)
        self.command = list(command)
        self.environment = without_airflow(environment)
        self._on_progress = on_progress

    def run(self) -> int:
        """Returns the job's exit code, negative when a signal ended it."""
        try:
            self.submit(
                env=self.environment,
                errors="replace",
                start_new_session=True,
                preexec_fn=_dies_with(os.getpid()),
            )
        except AirflowException:
            if self._submit_sp is None or not self._submit_sp.returncode:
                raise
        finally:
            self.end_group()
        assert self._submit_sp is not None
        if self._submit_sp.stdout is not None:
            self._submit_sp.stdout.close()
        return int(self._submit_sp.returncode)

    @property
    def last_lines(self) -> list[str]:
        """The last lines that the job printed, from an exception on when there was one."""
        return [line for line in self._last_submit_log_lines if line][-40:]

    def on_kill(self) -> None:
        """Ends the job with its whole process group: politely first, so that Spark clears its local folders."""
        process = self._submit_sp
        if process is None or process.poll() is not None:
            return
        self.log.info("Ending the Spark job (process group %s)", process.pid)
        _signal_group(process.pid, signal.SIGTERM)
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.log.warning("It did not end within %.0f s, killing it", _END_SECONDS)
        self.end_group()

    def end_group(self) -> None:
        """Kills what is left of the job's process group: a driver's Python may outlive its JVM, and the other way."""
        if self._submit_sp is not None:
            _signal_group(self._submit_sp.pid, signal.SIGKILL)

    def _build_spark_submit_command(self, application: str) -> list[str]:
        return self.command

    def _process_spark_submit_log(self, itr: Iterable[str]) -> None:
        super()._process_spark_submit_log(self._human_lines(itr))

    def _human_lines(self, lines: Iterable[str]) -> Iterable[str]:
        for line in lines:
            progress = parse_progress(line)
            if progress is not None:
                self._on_progress(progress)
            elif not is_for_machines(line):
                yield line


def without_airflow(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns an environment without Airflow's variables: a job needs none of them, and many hold secrets."""
    return {name: value for name, value in environment.items() if not name.startswith(("AIRFLOW", "_AIRFLOW"))}


def _dies_with(parent: int) -> Callable[[], None]:
    def before_exec() -> None:
        if _LIBC is not None:
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # The parent died before the kernel was asked.
            os._exit(143)

    return before_exec


def _signal_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return
