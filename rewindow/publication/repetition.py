"""Finds out whether a replay repeats the computation that it replaces.

If it does, the state at its end equals the published state, even if the replay's state was not
saved. Outputs and state depend on the start state, the code, the configuration and the inputs. If
all four are equal to those of the replaced windows, and the outputs have the same digests, the
states are equal, too.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from rewindow.errors import InputError, TableError
from rewindow.facts.readers import staged_seals
from rewindow.facts.seals import read_seals
from rewindow.ledger import Ledger, Publication
from rewindow.names import windows_name
from rewindow.publication.history import shown_without
from rewindow.recovery import InputPlan, Plan
from rewindow.settings.config import Config
from rewindow.storage import Table
from rewindow.storage.names import data_name, open_published
from rewindow.windows import WindowRange

_DIGESTS = ["window_id", "tuples", "digest", "float_digest"]
_MADE_BY = {"code_version", "configuration_digest", "parameters", "given", "changes"}


def repeated_publications(
    config: Config,
    ledger: Ledger,
    plan: Plan,
    acts: list[Publication],
    states: Mapping[int, str],
    facts: Table,
) -> tuple[int, ...]:
    """Returns the numbers of the publications whose end state a replay has reproduced.

    A range that shows more than one publication is not compared.

    Args:
        config: current settings.
        ledger: the ledger, with the plans of replaced replays.
        plan: the replay's plan.
        acts: publications and undos of its application.
        states: window to the digest of the state that the replay saved.
        facts: the replay's facts.
    """
    (_, act), *others = shown_without(acts, plan.range)
    if (
        others
        or act is None
        or act.details.states.get(plan.first - 1) != states.get(plan.first - 1)
    ):
        return ()
    try:
        other = ledger.replays.get(act.replay_id).read_plan()
        is_same = _made_alike(config, plan, other) and _same_outputs(config, plan, facts)
    except (InputError, TableError):
        return ()  # The older plan, or a version of an input, was purged.
    return (act.number, *act.details.repeats) if is_same else ()


def _made_alike(config: Config, plan: Plan, other: Plan) -> bool:
    # At most once may have lost windows only from the state, which the outputs do not show.
    if plan.may_lose or other.may_lose or len(plan.inputs) != len(other.inputs):
        return False
    if plan.model_dump(include=_MADE_BY) != other.model_dump(include=_MADE_BY):
        return False
    pairs = zip(plan.inputs, other.inputs, strict=True)
    return all(_same_input(config, one, two, plan.range) for one, two in pairs)


def _same_input(config: Config, one: InputPlan, two: InputPlan, windows: WindowRange) -> bool:
    if (one.stream, one.table_id, one.end) != (two.stream, two.table_id, two.end):
        return False
    if one.windows_version == two.windows_version:
        return True
    return _sealed(config, one, windows).equals(_sealed(config, two, windows))


def _sealed(config: Config, entry: InputPlan, windows: WindowRange) -> pa.Table:
    table = Table.open(entry.windows_table(config.state), entry.windows_version)
    return read_seals(table, windows).select(_DIGESTS)


def _same_outputs(config: Config, plan: Plan, facts: Table) -> bool:
    for output in plan.staged:
        table = open_published(config, windows_name(data_name(plan.application, output.name)))
        published = read_seals(table, plan.range).select(_DIGESTS)
        staged = staged_seals(facts, output.name, plan.range).select(_DIGESTS)
        if not staged.cast(published.schema).equals(published):
            return False
    return True
