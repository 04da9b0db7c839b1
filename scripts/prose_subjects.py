"""Checks subjects of commits: imperative, at most 72 characters, no full stop."""

from __future__ import annotations

import re
from collections.abc import Iterator

from prose_patterns import PATTERNS

SUBJECT_LENGTH_MAX = 72


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


VERBS = _words(
    """
    accept add adopt align allow announce apply archive ask assert assign attach avoid
    backport ban batch bind block bound break bring build bump cache call cancel cap carry
    catch centralize change check choose cite clarify clean clear clone close collapse collect
    combine commit compare compress compute configure connect consolidate convert copy correct
    count cover create cut declare decouple deduplicate default defer define delegate delete
    deny deprecate derive describe detect disable discard document download drop embed emit
    enable encode end enforce ensure exclude exit expand expect explain export expose extend
    extract fail feed fetch fill filter find finish fix flag flatten fold follow forbid force
    format freeze generate group guard handle hide hint hold ignore implement import improve
    include increase inherit initialize inline insert install introduce isolate join keep kill
    label lazy-load let limit link list load lock log look lower make map mark match measure merge
    migrate mirror mock move name narrow normalize note obtain omit open optimize order pack
    parametrize parse pass pause permit pin plant point port postpone prefer prepare preserve
    prevent print probe propagate protect prove provide prune publish purge push put
    quarantine quote raise read rebuild recompute record recover redirect reduce refactor
    refresh refuse regenerate register reject release reload remove rename render reorder
    repair repeat replace replay report request require reserve reset resolve respect restore
    restrict resume reword retry return reuse revert review rewrite rewind route run sample save
    scan schedule seal search select send separate serialize serve set share shorten show shrink
    simplify size skip sort speed split stage start state stop store stream strip submit
    summarize support suppress swap switch synchronize take teach tell test throttle tighten
    time track transform translate trim truncate turn type undo unfold unify unpack update upgrade
    use validate verify wait warn widen withdraw wrap write
    """
)
"""First words that are imperatives. Another word passes if the subject has no finite verb."""

_NO_VERBS = _words(
    """
    a an the what who whoever where when why how which of in on with at for from by if to as
    and or but no not nor all each every some any both either neither many few more most only
    such so this that these those there it they we you i its their our your one two three new
    old nothing nobody once after before until while because although since without between
    behind beside below above into also now still never always first last other another fewer
    whole short empty airflow application architecture causal coverage delta demo event
    example gap heartbeat image ledger operator page recovery spark supervisor tuple window
    made wrote took gave ran built kept found went was were sent held left began did got had
    """
)
_ENDS_LIKE_A_PAST = _words("embed exceed feed heed need proceed seed shed shred speed succeed weed")
_ENDS_LIKE_A_GERUND = _words("bring ping ring sing spring string swing")
_ENDS_LIKE_A_THIRD_PERSON = re.compile(r"ss$|us$|alias$|bias$")
_FINITE = re.compile(
    r"\b(?:is|are|was|were|has|have|had|does|do|did|can|cannot|could|will|would|must|should|may|goes"
    r"|(?:say|take|give|stand|come|begin|end|need|show|count|name|become|stay|work)s?)\b"
)
_SKIPPED = re.compile(r'Merge |Revert "')
_FIXUP = re.compile(r"(?:(?:fixup|squash|amend)! )+")


def subject_of(message: str) -> str:
    """Returns the first line of a commit message that has text and is not a comment of Git."""
    lines = [line.strip() for line in message.splitlines() if not line.startswith("#")]
    return next(filter(None, lines), "")


def faults_of(subject: str) -> Iterator[str]:
    """Yields the faults of a subject; those of merges and reverts come from Git and have none.

    >>> for fault in faults_of("Added a check."):
    ...     print(fault)
    ends with a full stop
    starts with "Added", which is not an imperative; write "Add ..." or "Fix ..."
    """
    if _SKIPPED.match(subject):
        return
    subject = _FIXUP.sub("", subject)
    if not subject:
        yield "is empty"
        return
    if len(subject) > SUBJECT_LENGTH_MAX:
        yield f"has {len(subject)} characters, at most {SUBJECT_LENGTH_MAX} are allowed"
    if subject.endswith("."):
        yield "ends with a full stop"
    first = subject.split()[0]
    if first.endswith(":"):
        yield f'starts with the prefix "{first}"'
        return
    if not _is_imperative(first, subject):
        yield f'starts with "{first}", which is not an imperative; write "Add ..." or "Fix ..."'
    elif not first[0].isupper():
        yield f'starts with "{first}" in lower case'
    for pattern in PATTERNS:
        for start, end in pattern.spans(subject):
            yield f'has "{subject[start:end].strip()}"; write {pattern.instead}'


def _is_imperative(first: str, subject: str) -> bool:
    word = first.lower()
    if word in VERBS:
        return True
    if word in _NO_VERBS or not first.replace("-", "").isalpha() or not first[1:].islower():
        return False
    if word.endswith("ed") and word not in _ENDS_LIKE_A_PAST:
        return False
    if word.endswith("ing") and word not in _ENDS_LIKE_A_GERUND:
        return False
    if word.endswith("s") and not _ENDS_LIKE_A_THIRD_PERSON.search(word):
        return False
    return not _FINITE.search(subject)
