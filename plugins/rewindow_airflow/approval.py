"""The question whether a replay should be published, and the task that records the decision."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import BaseOperator, Param
from airflow.sdk.exceptions import AirflowSkipException

from rewindow.sequences import quantity
from rewindow.windows import WindowRange, format_time
from rewindow_airflow.failures import mapped_errors
from rewindow_airflow.forms import APPROVE, STAGED
from rewindow_airflow.links import address, push_links
from rewindow_airflow.replay_task import ReplayTask

if TYPE_CHECKING:
    from airflow.sdk import Context

    from rewindow.certificate import Certificate
    from rewindow.ledger import Replay
    from rewindow.publication.evidence import PublicationEvidence
    from rewindow.windows import Grid

LEAVE_STAGED = "leave_staged"
GIVE_UP = "give_up"
DECISION = "decision"
"""XCom with the decision: who decided what, and the comment."""
ACCEPTED = "accepted"
"""XCom with the reason for publishing in spite of objections, and the user who gave it."""
_ROWS_MAX = 5
_LINES_MAX = 8


class ApprovePublicationOperator(ReplayTask, ApprovalOperator):
    """Asks a user whether to publish, if the form requests it.

    Otherwise it succeeds immediately, or leaves the range staged.

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
        grid = evidence.plan.grid
        self.subject = self.subject or (
            f"Publish {evidence.plan.application}, {_times(grid, evidence.plan.range)}?"
        )
        self.body = question(evidence, evidence.plan.reason, self.body or "")
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Continues after the answer: passes on the decision, or skips the publication.

        Raises:
            TaskAwaitingInput: the user approved without the field `accept`, although it is needed.
        """
        inputs = event.get("params_input") or {}
        accept = str(inputs.get("accept") or "").strip()
        approved = event.get("chosen_options") == [self.APPROVE]
        if approved and not accept and evidence_of(self.replay, compare=False).is_flawed:
            self.log.warning(
                "Approve needs the field accept, because the replay has flawed windows or other "
                "objections: asking again"
            )
            self._ask_again(context)
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

    def _ask_again(self, context: Context) -> None:
        """Removes the answer, and waits for another one. It notifies no user again."""
        # The question is the same, so one message about it is enough.
        notifiers, self.notifiers = self.notifiers, []
        try:
            super().execute(context)
        finally:
            self.notifiers = notifiers


class CloseReplayOperator(ReplayTask, BaseOperator):
    """Records what was decided about a replay that was not published: left staged, or given up.

    So a run never ends with a replay about which nothing is known.

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
            decision = _decision_of(context)
            if _is_closed(known):
                self.log.info("Replay %s is %s", self.replay, known.state.value)
                return known.state.value
            words = _decision_words(decision)
            if decision and decision["when_rejected"] == GIVE_UP:
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


def question(evidence: PublicationEvidence, reason: str, body: str = "") -> str:
    """Returns the text for an approver as Markdown.

    Texts of a user in it are not interpreted as markup.

    Args:
        evidence: facts about the replay.
        reason: the reason that was given for the replay.
        body: a text of the DAG's author, which is shown below the first line.
    """
    plan = evidence.plan
    grid = plan.grid
    replay_id = quote(plan.replay_id, safe="")
    pages = (
        ("replay", f"replays/{replay_id}/page"),
        ("window report", f"replays/{replay_id}/report"),
        ("checks of the gate", f"replays/{replay_id}/docs"),
        ("certificate", f"replays/{replay_id}/certificate"),
    )
    links = ", ".join(f"[{name}]({address(path)})" for name, path in pages)
    parts = [
        f"**{headline(evidence)}**",
        body,
        f"{quantity(len(plan.range), 'window')} {plan.range}, {_times(grid, plan.range)}; "
        f"mode {plan.mode_words}; {quantity(plan.input_tuples, 'tuple')} in, "
        f"{_counts(evidence.tuples)}.",
        f"Replay and application:\n\n{verbatim(f'{plan.replay_id} of {plan.application}')}",
        f"The reason that was given, word for word:\n\n{verbatim(reason)}" if reason else "",
        *_flaws(evidence),
        _gate(evidence),
        _difference(evidence.difference, grid),
        _stale(evidence),
        "To approve, fill in the field `accept` with a reason; it is stored with the publication. "
        "Without it, Airflow asks again."
        if evidence.is_flawed
        else "",
        "To undo the publication later, start the DAG `act_on_replay` with act `undo` and this "
        f"replay, or run:\n\n{verbatim(f'rewindow undo {plan.replay_id}')}",
        f"Pages: {links}",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def headline(evidence: PublicationEvidence) -> str:
    """Returns the most important fact for the decision, in one line."""
    whole = quantity(len(evidence.plan.range), "window")
    flaws = {
        "lost": evidence.flawed("lost"),
        "partial, that is, lost in some outputs": evidence.partial,
        "affected by lost windows": evidence.flawed("affected"),
        "computed without all of their input": evidence.flawed("missing"),
    }
    parts = [f"{count:,} {flaw}" for flaw, count in flaws.items() if count]
    failed = sum(finding.blocks for finding in evidence.findings)
    warned = len(evidence.findings) - failed
    gate = "The gate has passed"
    if failed:
        gate = f"The gate has failed in {quantity(failed, 'check')}"
    elif warned:
        gate += f" with {quantity(warned, 'warning')}"
    if parts:
        return f"Of {whole}: {'; '.join(parts)}. Their rows are missing or wrong. {gate}."
    if evidence.objections:
        return f"{quantity(len(evidence.objections), 'objection')}, see below. {gate}."
    return f"{whole}: none is lost, partial or affected. {gate}."


def _flaws(evidence: PublicationEvidence) -> Iterator[str]:
    from rewindow.publication.objections import flaw_line

    grid = evidence.plan.grid
    lines = []
    for flaw, ranges in evidence.flaws.items():
        lines.append(
            f"{flaw_line(flaw, ranges)}, from {format_time(grid.start_us(ranges[0].first))}"
        )
    if lines:
        yield "Flawed windows:\n\n" + verbatim("\n".join(lines))
    if evidence.objections:
        yield "Objections to the publication:\n\n" + verbatim("\n".join(evidence.objections))


def _gate(evidence: PublicationEvidence) -> str:
    """Returns the checks that did not pass, with the description and the number of windows."""
    grid = evidence.plan.grid
    lines = []
    for finding in islice(evidence.findings, _LINES_MAX):
        level = "failed" if finding.blocks else finding.severity
        line = f"{level}: {finding.output}, {finding.description or finding.check}"
        if finding.observed:
            line += f"; observed {finding.observed}"
        if finding.windows:
            windows = sum(map(len, finding.windows))
            start = format_time(grid.start_us(finding.windows[0].first))
            line += f"; {windows:,} windows, from {start}"
        lines.append(line)
    more = len(evidence.findings) - len(lines)
    lines += [f"and {more} more"] * (more > 0)
    return "Findings of the gate:\n\n" + verbatim("\n".join(lines)) if lines else ""


def _difference(difference: Certificate | None, grid: Grid) -> str:
    """Returns how the replay differs from what is published now: windows by class, and rows."""
    if difference is None:
        return "Nothing is published in this range now: no window is replaced."
    if difference.equal:
        return "The replay equals what is published now: the publication changes no rows."
    table = [
        "| output | windows | equal | changed | affected | lost | only published now | new |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for output in difference.outputs:
        only = {
            side: sum(last - first + 1 for first, last in parts)
            for side, parts in output.only_in.items()
        }
        counts = [output.classes.get(name, 0) for name in ("equal", "changed", "affected", "lost")]
        row = [output.windows, *counts, only.get("a", 0), only.get("b", 0)]
        cells = " | ".join(f"{count:,}" for count in row)
        table.append(f"| `{output.name}` | {cells} |")
    parts = ["The difference from what is published now:", "\n".join(table)]
    parts.append(difference.missing_words() + ".")
    found = difference.first_difference
    if found is not None:
        start = format_time(grid.start_us(found["window"]))
        sides = (("published", found["rows_a"]), ("replay   ", found["rows_b"]))
        lines = []
        for side, rows in sides:
            for values in rows[:_ROWS_MAX]:
                shown = ", ".join(f"{name}={value}" for name, value in values.items())
                lines.append(f"{side}: {shown}")
        parts.append(
            f"Rows of the first window that differs, {found['window']} ({start}), of "
            f"`{found['output']}`:\n\n{verbatim(chr(10).join(lines))}"
        )
    return "\n\n".join(parts)


def _stale(evidence: PublicationEvidence) -> str:
    """Returns what must be replayed after the publication."""
    grid = evidence.plan.grid
    lines = [
        f"{entry.table}: {quantity(len(entry.windows), 'window')}, {_times(grid, entry.windows)}"
        for entry in evidence.stale
    ]
    lines += [
        f"{reader.application} read windows that change: {reader.why}"
        for reader in evidence.readers
    ]
    if not lines:
        return "Nothing downstream becomes stale."
    more = len(lines) - _LINES_MAX
    shown = lines[:_LINES_MAX] + [f"and {more} more"] * (more > 0)
    return (
        "Becomes stale, and can be repaired with the DAG `act_on_stream`, act `repair`:\n\n"
        + verbatim("\n".join(shown))
    )


def _counts(tuples: Mapping[str, int]) -> str:
    counts = [f"{quantity(count, 'tuple')} of {name}" for name, count in tuples.items()]
    return ", ".join(counts) or "none out"


def _times(grid: Grid, windows: WindowRange) -> str:
    return (
        f"{format_time(grid.start_us(windows.first))} to {format_time(grid.end_us(windows.last))}"
    )


def _is_closed(known: Replay) -> bool:
    from rewindow.launcher.attempts import CLOSED_STATES

    return known.state.value in CLOSED_STATES


def _decision_of(context: Context) -> dict[str, Any] | None:
    """Returns the decision that a task of this run has passed on; None without a question."""
    instance = context["ti"]
    for task_id in sorted(context["task"].get_flat_relative_ids(upstream=True)):
        found = instance.xcom_pull(task_ids=task_id, key=DECISION)
        if found:
            return dict(found)
    return None


def _decision_words(decision: dict[str, Any] | None) -> str:
    """Returns the decision about a replay that was not published, as text."""
    if decision is None:
        return "not published: left staged, as the run requests"
    if decision["approved"]:
        return f"approved by {decision['by']}, but not published yet"
    end = "given up" if decision["when_rejected"] == GIVE_UP else "left staged"
    comment = f": {decision['comment']}" if decision["comment"] else ""
    by = f"rejected by {decision['by']}" if decision["by"] else "not approved before the deadline"
    return f"publication {by}, {end}{comment}"


def accepted_in(context: Context) -> dict[str, str]:
    """Returns the reason with which a task upstream has accepted objections, and the user who gave
    it. Empty if there are none.
    """
    instance = context["ti"]
    for task_id in sorted(context["task"].upstream_task_ids):
        found = instance.xcom_pull(task_ids=task_id, key=ACCEPTED)
        if found:
            return dict(found)
    return {}


def _fields() -> dict[str, Param]:
    return {
        "accept": Param(
            None,
            type=["null", "string"],
            source="task",
            title="Accept",
            description="Needed to approve flawed windows or other objections: the reason for "
            "publishing anyway.",
        ),
        "comment": Param(
            None,
            type=["null", "string"],
            source="task",
            title="Comment",
            description="Stored with the replay if it is rejected.",
        ),
        "when_rejected": Param(
            LEAVE_STAGED,
            type="string",
            source="task",
            enum=[LEAVE_STAGED, GIVE_UP],
            values_display={
                LEAVE_STAGED: "leave it staged, so that it can still be published",
                GIVE_UP: "give it up, so that its range can be planned again",
            },
            title="When rejected",
        ),
    }


def verbatim(text: str) -> str:
    """Returns a text as a Markdown code block. No content of the text can end the block.

    >>> print(verbatim("a ``` b"))
    ````text
    a ``` b
    ````
    """
    lines = ["".join(map(_shown, line)) for line in re.split(r"\r\n|\n|\r", text)]
    longest = max(map(len, re.findall(r"[`~]+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}text", *lines, fence])


def _shown(letter: str) -> str:
    """Returns a character, or a replacement if it is invisible, such as characters that change the
    direction of text.
    """
    return letter if letter.isprintable() or letter == "\t" else "\N{REPLACEMENT CHARACTER}"
