"""The description of a side in a certificate.

For a replay, it has the origin and the settings. For published tables, it has only the tables.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer


class StartDescription(BaseModel):
    """The start state of a replay as in its plan: its origin, and the windows that were missing
    from it or stale.
    """

    model_config = ConfigDict(frozen=True)

    source: str
    window: int | None
    digest: str
    lacking: list[tuple[int, int]]
    stale: list[tuple[int, int]]


class Description(BaseModel):
    """A side of a certificate.

    Its JSON contains only the fields that were set, so a published side has no fields of a replay.

    Attributes:
        name: a replay's id, or "published".
        first, last: the requested windows, closed.
        mode: its recovery mode; the modes of its containers if it has several.
        guarantees: output name to its guarantee and the reason; None with one container.
        attempts: epochs with facts.
        committed_windows: number of the replay's committed windows; `ended` if these are all.
        candidate: for a candidate, a text about the code and the input that it was computed with.
        inputs: stream to the versions of its table and of its seals, and the table's id.
        inputs_compared: a text about how input files were compared with the properties noted when
            they were written.
        table_versions, table_ids: versions and ids of the tables that were read.
        windows_sealed_again: number of windows that more than one attempt has sealed.
        compared: for a published side, the properties of each table that were compared with the
            ledger and the seals.
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
