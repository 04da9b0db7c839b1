"""The task that finds published windows whose inputs have changed since, and repairs them if
allowed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.exceptions import HITLTriggerEventError
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from rewindow_airflow.assets import emit_publications
from rewindow_airflow.attempts import settings_for
from rewindow_airflow.command_task import CommandOperator
from rewindow_airflow.failures import mapped_errors
from rewindow_airflow.forms import APPROVE
from rewindow_airflow.hints import in_airflow

if TYPE_CHECKING:
    from airflow.sdk import Context

    from rewindow.repairs.find import Repairs
    from rewindow.settings.config import Config

_COMMAND = ("repair", "--run")
_ASKED = "asked"
_APPROVED = "approved"
"""Keys of the task's stored state: windows in the newest question, and in the newest approval."""
_LINES_MAX = 200


class RepairOperator(CommandOperator, ApprovalOperator):
    """Shows published windows that are wrong because of late tuples or other changed inputs, and
    repairs them with `[airflow] repairs = true`. With `"approve"`, it asks a person first.

    Without that setting nothing is changed: the log lists the windows to replay, the reasons and
    the commands. The repair runs `rewindow repair --run` in a separate process, without Airflow's
    environment variables.

    An approval is valid for the windows in its question until they are repaired, also in a retry.
    A retry does not repeat a question that was not answered in time.

    Args:
        conn_id: Airflow connection of the Spark to use; without it the settings in rewindow.toml.
        subject: title of the question.
    """

    what = "repair"
    ending = "Published windows stay published; a retry or a clear of this task repairs the rest."

    def __init__(self, *, subject: str = "Repair the published windows?", **kwargs: Any) -> None:
        super().__init__(subject=subject, **kwargs)

    def execute(self, context: Context) -> dict[str, Any]:
        """Returns the necessary repairs, and whether they were made.

        Raises:
            AirflowFailException: a gate did not pass, or another attempt cannot help.
            AirflowException: a job failed, or another replay has leased a range; Airflow retries.
            AirflowRescheduleException: Airflow is about to end; this uses up no try.
            TaskAwaitingInput: a person must approve the repair first.
        """
        config, found = self._find()
        if config.airflow.repairs == APPROVE and not _is_approved(context, found):
            store = context["task_state_store"]
            store.set(_APPROVED, [])
            store.set(_ASKED, list(_windows(found, expected=True)))
            self.body = _question(found)
            return super().execute(context)  # type: ignore[no-any-return]
        return self._repair(config, context, found)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Repairs after an approval, and returns the same as `execute`.

        Raises:
            AirflowFailException: the question was not answered in time.
            AirflowException: other windows must be repaired than those in the question; the retry
                asks again.
        """
        try:
            answer = super().execute_complete(context, event)
        except HITLTriggerEventError as error:
            raise AirflowFailException(
                "The question was not answered in time: nothing was changed"
            ) from error
        config, found = self._find()
        if answer["chosen_options"] != [self.APPROVE]:
            self.log.warning("Rejected: nothing was changed")
            return found.to_dict() | {"repaired": False}
        store = context["task_state_store"]
        store.set(_APPROVED, store.get(_ASKED))
        if not _is_approved(context, found):
            raise AirflowException(
                "Inputs have changed since the question, and other windows must be repaired, too\n"
                "  Hint: The retry of this task asks again."
            )
        return self._repair(config, context, found)

    def _find(self) -> tuple[Config, Repairs]:
        from rewindow.repairs.find import find_repairs

        with mapped_errors():
            config = settings_for(self.conn_id)
            found = find_repairs(config)
        for text in found.unknown:
            self.log.warning("not known: %s", text)
        for line in _lines(found):
            self.log.warning("%s", line)
        return config, found

    def _repair(self, config: Config, context: Context, found: Repairs) -> dict[str, Any]:
        is_needed = bool(found.late or found.steps)
        is_allowed = bool(config.airflow.repairs)
        if is_needed and is_allowed:
            self.run_command(config, context, _COMMAND)
            context["task_state_store"].set(_APPROVED, [])
        elif is_needed:
            self.log.warning(
                "%s", in_airflow("Nothing was changed\n  Hint: In a shell: rewindow repair --run")
            )
            self.log.warning(
                "To let this task repair them, set repairs = true in the section [airflow] of "
                'rewindow.toml; with repairs = "approve", it asks first'
            )
        else:
            self.log.info("Nothing to repair")
        with mapped_errors():
            emit_publications(context, config)
        return found.to_dict() | {"repaired": is_needed and is_allowed}


def _lines(found: Repairs) -> Iterator[str]:
    """Yields the text of each necessary repair, with the reasons."""
    for late in found.late:
        windows = late.grid.describe(late.windows)
        yield f"late tuples of {late.stream} for windows {windows}: {late.tuples:,}"
    for step in found.steps:
        yield f"to be replayed: {step.application}, windows {step.grid.describe(step.windows)}"
        yield from (f"    {reason}" for reason in step.reasons)
        yield f"    in a shell: {step.command}"


def _question(found: Repairs) -> str:
    """Returns the text of the question as Markdown, in which texts are not interpreted."""
    from rewindow.pages.questions import verbatim

    lines = list(_lines(found))
    shown = lines[:_LINES_MAX]
    if len(lines) > _LINES_MAX:
        shown.append(f"... and {len(lines) - _LINES_MAX:,} more lines; see the log of this task")
    return (
        "Inputs of published windows have changed. *Approve* adds the late tuples to their "
        "windows, and replays, checks and publishes these windows:\n\n"
        f"{verbatim(chr(10).join(shown))}\n\n"
        "*Reject* changes nothing. To undo a publication later, start the DAG `act_on_replay` with "
        "action `undo`.\n"
    )


def _windows(found: Repairs, expected: bool = False) -> Iterator[list[Any]]:
    """Yields name, first and last window of each necessary repair.

    Args:
        found: the necessary repairs.
        expected: whether to include windows that may follow when others are published.
    """
    for late in found.late:
        yield [late.stream, late.windows.first, late.windows.last]
    for step in found.steps:
        for windows in (step.windows, *(step.may_follow if expected else ())):
            yield [step.application, windows.first, windows.last]


def _is_approved(context: Context, found: Repairs) -> bool:
    """Returns whether the newest approval contains all windows to repair."""
    approved = context["task_state_store"].get(_APPROVED) or []
    return all(
        any(name == other and start <= first and last <= end for other, start, end in approved)
        for name, first, last in _windows(found)
    )
