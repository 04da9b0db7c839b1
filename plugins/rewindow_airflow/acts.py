"""Actions on a replay, a stream or old data, which a user starts with the form of a DAG.

Each action is a command of Rewindow. A run first shows the effect of the command in its log.
Actions that remove or replace rows ask for an approval, with this preview in the question.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowSkipException

from rewindow_airflow.assets import emit_publications
from rewindow_airflow.attempts import settings_for
from rewindow_airflow.command_task import CommandOperator
from rewindow_airflow.failures import DONE, cause, failure, mapped_errors
from rewindow_airflow.operators import CONNECTION
from rewindow_airflow.spark_process import without_airflow

if TYPE_CHECKING:
    from airflow.sdk import Context

Words = list[str]
Form = Mapping[str, Any]
_COLUMNS = "160"
"""Width of the tables in a preview, in characters."""
_PREVIEW_LENGTH_MAX = 20_000
_USED_APPROVAL = "used_approval"
"""Key of the task's stored state: the approval of the last action that was done."""


@dataclass(frozen=True)
class Act:
    """A command that a user starts with a form.

    Attributes:
        command: the words of the command, from the values of the form.
        preview: the words of a command that shows the effect and changes nothing.
        asks: whether a user must approve it after the preview.
        done: exit codes that count as success.
    """

    command: Callable[[Form], Words]
    preview: Callable[[Form], Words]
    asks: bool = False
    done: tuple[int, ...] = (DONE,)


def _publish(form: Form) -> Words:
    accept = str(form["accept"] or "").strip()
    return ["publish", form["replay"], *(["--accept", accept] if accept else [])]


def _reopen(form: Form) -> Words:
    return ["record", form["stream"], "--reopen"]


def _replace(form: Form) -> Words:
    return [*_reopen(form), "--replace"]


def _purge(form: Form) -> Words:
    return ["purge", "--older-than", str(form["older_than_days"])]


def _status(form: Form) -> Words:
    return ["status", form["replay"]]


REPLAY_ACTS: Mapping[str, Act] = {
    "publish": Act(_publish, lambda form: [*_publish(form), "--dry-run"]),
    "undo": Act(
        lambda form: ["undo", form["replay"]],
        lambda form: ["undo", form["replay"], "--dry-run"],
        asks=True,
    ),
    "abandon": Act(
        lambda form: ["abandon", form["replay"], "--reason", form["reason"].strip()],
        _status,
    ),
    "resume": Act(lambda form: ["replay", "--resume", form["replay"], "--again"], _status),
    # The exit code 1 means that the two sides differ, which is a result.
    "certify": Act(lambda form: ["certify", "published", form["replay"]], _status, done=(DONE, 1)),
}
STREAM_ACTS: Mapping[str, Act] = {
    "reopen": Act(
        lambda form: [*_reopen(form), "--yes"], lambda form: [*_reopen(form), "--dry-run"]
    ),
    "replace": Act(
        lambda form: [*_replace(form), "--yes"],
        lambda form: [*_replace(form), "--dry-run"],
        asks=True,
    ),
    "repair": Act(lambda _: ["repair", "--run"], lambda _: ["repair"]),
}
PURGE: Mapping[str, Act] = {
    "purge": Act(lambda form: [*_purge(form), "--yes"], _purge, asks=True),
}
ACTS = {**REPLAY_ACTS, **STREAM_ACTS, **PURGE}


def act_of(context: Context) -> Act:
    """Returns the action that the form of a run selects."""
    return ACTS[context["params"].get("act", "purge")]


def _approval_in(context: Context) -> str:
    """Returns the time of the answer of the question upstream; empty without a question."""
    for task_id in sorted(context["task"].upstream_task_ids):
        answer = context["ti"].xcom_pull(task_ids=task_id, key="return_value")
        if isinstance(answer, dict) and answer.get("responded_at"):
            return str(answer["responded_at"])
    return ""


def shown_words(words: Sequence[str]) -> str:
    """Returns a command as a user would type it."""
    import shlex

    return shlex.join(["rewindow", *words])


class PreviewActOperator(BaseOperator):
    """Shows the effect of an action in the log, and passes it on. Changes nothing.

    Args:
        conn_id: Airflow connection of the Spark to use; without it the settings in rewindow.toml.
    """

    def __init__(self, *, conn_id: str = CONNECTION, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.conn_id = conn_id

    def execute(self, context: Context) -> str:
        """Returns the preview as text.

        Raises:
            AirflowFailException: the action is not possible, for example because no replay has the
                given id.
        """
        from rewindow.launcher.attempts import job_environment

        form = context["params"]
        if form.get("act") in ("reopen", "replace") and not form["stream"]:
            raise failure(f'the action "{form["act"]}" needs a stream', retryable=False)
        words = act_of(context).preview(form)
        with mapped_errors():
            config = settings_for(self.conn_id)
            environment = without_airflow(job_environment(config)) | {"COLUMNS": _COLUMNS}
        # The preview is a command, not a call, so that a user sees the output of the shell.
        done = subprocess.run(
            [sys.executable, "-m", "rewindow.cli", *words],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        text = "\n".join(filter(None, (done.stdout.strip(), done.stderr.strip())))
        if done.returncode != DONE:
            raise failure(
                f"The preview of this action failed: {cause(done.returncode)}\n{text}",
                retryable=done.returncode < 0,
            )
        self.log.info("%s\n%s", shown_words(words), text)
        return f"{shown_words(words)}\n\n{text}"[:_PREVIEW_LENGTH_MAX]


class ApproveActOperator(ApprovalOperator):
    """Asks a user to approve an action that removes or replaces rows.

    Other actions need no approval.

    Args:
        preview: text about the effect of the action (templated).
        kwargs: arguments of Airflow's ApprovalOperator.
    """

    template_fields = ("preview", "subject", "body")
    subject: str
    body: str | None

    def __init__(self, *, preview: str, subject: str = "", **kwargs: Any) -> None:
        super().__init__(
            subject=subject, **{"defaults": [self.REJECT], "retries": 0, "body": "", **kwargs}
        )
        self.preview = preview

    def execute(self, context: Context) -> Any:
        """Asks, and waits for the answer. If the user rejects, the action is skipped."""
        from rewindow.pages.questions import verbatim

        form = context["params"]
        act = act_of(context)
        if not act.asks:
            self.log.info("This action needs no approval")
            return {"chosen_options": [self.APPROVE]}
        command = shown_words(act.command(form))
        self.subject = self.subject or f"Run {command}?"
        parts = (
            self.body,
            f"The command:\n\n{verbatim(command)}",
            f"The reason, verbatim:\n\n{verbatim(form['reason'])}",
            f"The preview:\n\n{verbatim(self.preview)}",
        )
        self.body = "\n\n".join(filter(None, parts))
        return super().execute(context)


class ActOperator(CommandOperator):
    """Runs the action that the form selects. Publications and undos emit their assets.

    Args:
        acts: the actions that this task runs; it is skipped for all others.
    """

    what = "action"
    ending = "If you clear this task, it runs the action again, without the completed parts."

    def __init__(self, *, acts: Sequence[str] = tuple(ACTS), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.acts = list(acts)

    def execute(self, context: Context) -> str:
        """Returns the command.

        Raises:
            AirflowFailException: the action failed, and another try cannot help; or its approval
                was used already.
            AirflowException: the action failed; Airflow retries.
            AirflowSkipException: another task runs this action.
        """
        name = context["params"].get("act", "purge")
        if name not in self.acts:
            raise AirflowSkipException(f'Another task runs the action "{name}"')
        act = ACTS[name]
        approval = _approval_in(context) if act.asks else ""
        store = context["task_state_store"]
        if approval and approval == store.get(_USED_APPROVAL):
            raise failure(
                f"The approval of {approval} was used already\n"
                "  Hint: Clear this run from its first task, which asks again.",
                retryable=False,
            )
        words = act.command(context["params"])
        self.what = name
        with mapped_errors():
            config = settings_for(self.conn_id)
        self.log.info("%s", shown_words(words))
        self.run_command(config, context, words, done=act.done)
        if approval:
            store.set(_USED_APPROVAL, approval)
        with mapped_errors():
            emit_publications(context, config)
        return shown_words(words)
