"""What a certificate says of a side beside its rows: of a replay what made it, of what is published
only its tables.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer


class StartDescription(BaseModel):
    """The start state of a replay, as in its plan: where it came from, and the windows that it
    lacked or had stale.
    """

    model_config = ConfigDict(frozen=True)

    source: str
    window: int | None
    digest: str
    lacking: list[tuple[int, int]]
    stale: list[tuple[int, int]]


class Description(BaseModel):
    """A side of a certificate. In JSON it has what was given: of what is published nothing that
    only a replay has.

    Attributes:
        name: a replay's id, or "published".
        first, last: the windows that it was asked about, closed.
        mode: its recovery mode; the modes of its containers if it has several.
        guarantees: output name to its guarantee and the reason; None with one container.
        attempts: epochs whose facts are there.
        committed_windows: how many windows of the replay are committed; `ended` when these are all.
        candidate: of a candidate, what it was computed by and on, in words.
        inputs: stream to the versions of its table and of its seals, and the table's id.
        inputs_compared: how input files were compared with what was noted when they were written,
            in words.
        table_versions, table_ids: those of the tables that were read.
        windows_sealed_again: windows that more than one attempt has sealed.
        compared: of what is published, what was compared with the ledger and the seals, by table.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    application: str
    mode: str | None = None
    guarantees: dict[str, str] | None = None
    code_version: str | None = None
    configuration_digest: str | None = None
    first: int
    last: int
    attempts: list[int] | None = None
    committed_windows: int | None = None
    ended: bool | None = None
    candidate: str | None = None
    inputs: dict[str, list[int | str | None]] | None = None
    inputs_compared: str | None = None
    start_state: StartDescription | None = None
    table_versions: dict[str, int]
    table_ids: dict[str, str]
    windows_sealed_again: int | None = None
    compared: list[str] | None = None

    @model_serializer(mode="wrap")
    def _as_given(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {
            name: value for name, value in handler(self).items() if name in self.model_fields_set
        }
