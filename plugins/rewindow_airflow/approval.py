"""The question whether a replay should be published, and the task that records the decision."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import BaseOperator, Param
from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowSkipException,
    TaskAwaitingInput,
)

from rewindow_airflow.failures import mapped_errors
from rewindow_airflow.forms import APPROVE, STAGED, TEXT_LENGTH_MAX
from rewindow_airflow.hints import in_airflow
from rewindow_airflow.links import address, push_links
from rewindow_airflow.notices import notify_answered, notify_asked
from rewindow_airflow.replay_task import ReplayTask

if TYPE_CHECKING:
    from airflow.sdk import Context

    from rewindow.ledger import Replay
    from rewindow.publication.evidence import PublicationEvidence

logger = logging.getLogger(__name__)

LEAVE_STAGED = "leave_staged"
GIVE_UP = "give_up"
DECISION = "decision"
"""XCom with the decision: who decided what, and the comment."""
ACCEPTED = "accepted"
"""XCom with the reason for publishing in spite of objections, and the user who gave it."""
SHOWN = "shown"
"""XCom with the objections that the question shows."""


class ApprovePublicationOperator(ReplayTask, ApprovalOperator):
    """Asks a user whether to publish.

    If the form requests to publish at once or never, it does not ask.

    The question shows the facts for the decision: flawed windows, the findings of the gate, the
    difference from the published tables, what becomes stale, and how to undo the publication. To
    approve a replay with flawed windows or other objections, the user must fill in `accept`;
    otherwise Airflow asks again. A rejection skips the publication. After
    `response_timeout` without an answer, the replay is rejected and stays staged.

    Airflow renders the body of the question as Markdown. Texts of a user are quoted in it as code
    blocks, so that they cannot load an image or look like part of the question.

    Args:
        replay: id of the replay (templated).
        subject: headline of the question (templated); by default the application and the range.
        body: text that is shown above the facts (templated).
        params: further fields of the question.
        kwargs: arguments of Airflow's ApprovalOperator, such as `response_timeout`, `notifiers` and
            `assigned_users`.
    """

    template_fields = ("replay", "subject", "body")
    subject: str
    body: str | None
    notifiers: Sequence[Any]

    def __init__(
        self,
        *,
        replay: str,
        subject: str = "",
        params: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        # Airflow adds the parameters of the DAG here. They are not fields of the question.
        given = dict((params or {}).items())
        of_dag = {name for name in given if getattr(given[name], "source", None) == "dag"}
        super().__init__(
            subject=subject,
            params={name: given[name] for name in of_dag - _fields().keys()}
            | _fields()
            | {name: value for name, value in given.items() if name not in of_dag},
            **{"defaults": [self.REJECT], "retries": 0, **kwargs},
        )
        self.replay = replay

    def execute(self, context: Context) -> Any:
        """Asks, and waits for the answer. If the user rejects, the publication is skipped.

        Raises:
            AirflowSkipException: the form asks to leave the range staged.
            AirflowFailException: the replay cannot be published.
        """
        push_links(self, context)
        wish = context["params"].get("publish", APPROVE)
        if wish == STAGED:
            raise AirflowSkipException("The form asks to leave the range staged")
        if wish != APPROVE:
            self.log.info("The form asks to publish as soon as the gate has passed")
            return {"chosen_options": [self.APPROVE]}

        evidence = evidence_of(self.replay)
        plan = evidence.plan
        times = plan.grid.times(plan.range)
        self.subject = self.subject or f"Publish {plan.application}, {times}?"
        self.body = question(evidence, self.body or "")
        context["ti"].xcom_push(key=SHOWN, value=list(evidence.objections))
        try:
            return super().execute(context)
        except TaskAwaitingInput:
            where = f"{plan.application}, windows {plan.range}, {times}"
            notify_asked(context, f'replay "{self.replay}" waits for an approval', where)
            raise

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Continues after the answer: passes on the decision, or skips the publication.

        Raises:
            AirflowFailException: there are objections that the question did not show.
            TaskAwaitingInput: the user approved without the field `accept`, although it is needed.
        """
        inputs = event.get("params_input") or {}
        accept = str(inputs.get("accept") or "").strip()
        approved = event.get("chosen_options") == [self.APPROVE]
        if approved:
            self._check_approval(context, accept)
        notify_answered(context)
        user = (event.get("responded_by_user") or {}).get("name")
        decision = {
            "approved": approved,
            "by": user,
            "comment": str(inputs.get("comment") or "").strip(),
            "when_rejected": inputs.get("when_rejected") or LEAVE_STAGED,
        }
        context["ti"].xcom_push(key=DECISION, value=decision)
        if approved and accept:
            context["ti"].xcom_push(key=ACCEPTED, value={"accept": accept, "who": user})
        return super().execute_complete(context, event)

    def _check_approval(self, context: Context, accept: str) -> None:
        """Rejects an approval whose question is outdated, and asks again if `accept` is missing."""
        evidence = evidence_of(self.replay, compare=False)
        shown = context["ti"].xcom_pull(task_ids=self.task_id, key=SHOWN) or []
        # Airflow keeps the text of a question until the task is cleared.
        if unseen := [one for one in evidence.objections if one not in shown]:
            raise AirflowFailException(
                "The question is outdated. There are new objections to the publication: "
                f"{'; '.join(unseen)}\n  Hint: A clear of this task asks again with current facts."
            )
        if evidence.is_flawed and not accept:
            self.log.warning(
                "Asking again: the replay has flawed windows or other objections, so an approval "
                "needs a reason in the field accept"
            )
            self._ask_again(context)

    def _ask_again(self, context: Context) -> None:
        """Removes the answer, and waits for another one. Does not notify users again."""
        # The question is the same, so one message about it is enough.
        notifiers, self.notifiers = self.notifiers, []
        try:
            super().execute(context)
        finally:
            self.notifiers = notifiers


class CloseReplayOperator(ReplayTask, BaseOperator):
    """Records the decision about a replay that was not published: left staged, or abandoned.

    So a run never ends without a recorded decision about its replay.

    Args:
        replay: id of the replay (templated).
    """

    template_fields = ("replay",)

    def __init__(self, *, replay: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.replay = replay

    def execute(self, context: Context) -> str:
        """Returns the state of the replay.

        Raises:
            AirflowSkipException: the run has no replay.
        """
        from rewindow.launcher.verbs import abandon
        from rewindow.ledger import Ledger
        from rewindow.settings.config import Config

        if not self.replay or self.replay == "None":
            raise AirflowSkipException("This run has no replay")
        with mapped_errors():
            config = Config.load()
            ledger = Ledger.open(config.ledger_url)
            known = ledger.replays.get(self.replay)
            decision = _passed_on(context, DECISION)
            if _is_closed(known):
                self.log.info("Replay %s is %s", self.replay, known.state.value)
                if known.state == "published" and decision and not decision["approved"]:
                    message = (
                        f'replay "{self.replay}" is published in spite of the decision in this '
                        f"run: {_decision_words(decision)}\n"
                        f"  Hint: To undo the publication: rewindow undo {self.replay}."
                    )
                    logger.warning("%s", in_airflow(message))
                return known.state.value
            words = _decision_words(decision)
            if decision and not decision["approved"] and decision["when_rejected"] == GIVE_UP:
                known = abandon(config, self.replay, reason=words)
            else:
                ledger.replays.remark(self.replay, words)
        self.log.warning("Replay %s is %s: %s", self.replay, known.state.value, words)
        return known.state.value


def evidence_of(replay_id: str, *, compare: bool = True) -> PublicationEvidence:
    """Returns the facts about a replay.

    Args:
        replay_id: the replay.
        compare: whether to compare it with the published tables.
    """
    from rewindow.publication.evidence import publication_evidence
    from rewindow.settings.config import Config

    with mapped_errors():
        return publication_evidence(Config.load(), replay_id, compare=compare)


def question(evidence: PublicationEvidence, body: str = "") -> str:
    """Returns the text for an approver as Markdown.

    Args:
        evidence: facts about the replay.
        body: a text of the DAG's author, which is shown below the first line.
    """
    from rewindow.pages.questions import publication_question

    folder = f"replays/{quote(evidence.plan.replay_id, safe='')}"
    pages = {
        "replay": "page",
        "window report": "report",
        "checks of the gate": "docs",
        "certificate": "certificate",
    }
    links = {name: address(f"{folder}/{page}") for name, page in pages.items()}
    return publication_question(evidence, links, body)


def _is_closed(known: Replay) -> bool:
    from rewindow.launcher.attempts import CLOSED_STATES

    return known.state.value in CLOSED_STATES


def _passed_on(context: Context, key: str) -> dict[str, Any]:
    """Returns what a task upstream has passed on; empty if none has."""
    for task_id in sorted(context["task"].get_flat_relative_ids(upstream=True)):
        found = context["ti"].xcom_pull(task_ids=task_id, key=key)
        if found:
            return dict(found)
    return {}


def _decision_words(decision: dict[str, Any]) -> str:
    """Returns the decision about a replay that was not published, as text."""
    if not decision:
        return "not published: left staged, as the form requests"
    if decision["approved"]:
        return f"approved by {decision['by']}, but not published yet"
    end = "abandoned" if decision["when_rejected"] == GIVE_UP else "left staged"
    comment = f": {decision['comment']}" if decision["comment"] else ""
    by = f"rejected by {decision['by']}" if decision["by"] else "not approved before the deadline"
    return f"publication {by}, {end}{comment}"


def accepted_in(context: Context) -> dict[str, str]:
    """Returns the reason with which a task upstream has accepted objections, and the user who gave
    it. Empty if there are none.
    """
    return _passed_on(context, ACCEPTED)


def _fields() -> dict[str, Param]:
    return {
        "accept": Param(
            None,
            type=["null", "string"],
            maxLength=TEXT_LENGTH_MAX,
            source="task",
            title="Accept",
            description="Required to approve flawed windows or other objections: the reason to "
            "publish in spite of them.",
        ),
        "comment": Param(
            None,
            type=["null", "string"],
            maxLength=TEXT_LENGTH_MAX,
            source="task",
            title="Comment",
            description="Stored with the replay if you reject its publication.",
        ),
        "when_rejected": Param(
            LEAVE_STAGED,
            type="string",
            source="task",
            enum=[LEAVE_STAGED, GIVE_UP],
            values_display={
                LEAVE_STAGED: "leave the replay staged, so that it can still be published",
                GIVE_UP: "abandon the replay, so that its range can be planned again",
            },
            title="When rejected",
        ),
    }
