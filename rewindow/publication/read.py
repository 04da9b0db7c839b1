"""Pinned reading: several published tables at one instant, that of a publication. No JVM but for the Spark frame."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from rewindow.config import Config
from rewindow.errors import InputError
from rewindow.ledger import Ledger
from rewindow.ledger.publication_details import PutBack
from rewindow.location import location
from rewindow.publication.commits import version_of
from rewindow.publication.contents import files_of
from rewindow.storage import Table, query
from rewindow.storage.published_tables import Kind, kind_of
from rewindow.windows import WindowRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_published(config: Config, application: str, publication: int | None = None) -> dict[str, tuple[str, int]]:
    """Returns output to (path, version) of its published table, all as of one publication.

    Tables are committed one after the other, so that their newest versions may show half a publication; these never do.

    Args:
        publication: number of a publication or an undo; the newest that is closed unless given.

    Raises:
        InputError: nothing is published, or there is no such closed publication.
    """
    if not isinstance(application, str):
        raise InputError(
            f"application {application!r} is no text",
            hint='Name one application, such as rewindow.read_published(config, "alarms").',
        )
    ledger = Ledger.open(config.ledger_url)
    every = ledger.publications.newest(application=application, limit=1_000_000)
    closed = [one for one in every if one.closed_at is not None and one.withdrawn is None]
    if publication is not None and publication not in {one.number for one in closed}:
        newest = f"Its newest is {closed[0].number}." if closed else ""
        raise InputError(f'publication {publication} of "{application}" is not there or not closed', detail=newest)
    found: dict[str, tuple[str, int]] = {}
    for one in closed:
        for table in one.tables:
            output = table.name.removeprefix(f"{application}.")
            if (publication is None or one.number <= publication) and kind_of(table.name) is Kind.DATA:
                path = str(config.stream_table(table.name))
                if output not in found:
                    version = table.version_after
                    found[output] = (path, version_of(config, table.name, one.number) if version is None else version)
    if not found:
        upstream, stop, output = application.partition(".")
        hint = "rewindow publish REPLAY makes it so."
        if stop:
            hint = f'"{application}" is a stream: name its application, "{upstream}", and take the output "{output}".'
        raise InputError(f'application "{application}" is not published', hint=hint)
    return found


def published_frame(
    spark: SparkSession, config: Config, application: str, output: str, publication: int | None = None
) -> DataFrame:
    """Returns a published output as a DataFrame, as of a publication.

    Raises:
        InputError: there is no such output or publication.
    """
    path, version = _one(config, application, output, publication)
    return spark.read.format("delta").option("versionAsOf", version).load(path)


def published_arrow(
    config: Config, application: str, output: str, windows: WindowRange, publication: int | None = None
) -> pa.Table:
    """Returns the tuples of a published output in a window range, as of a publication, ordered by window and offset.

    Raises:
        InputError: there is no such output or publication.
        TableError: that version's files are gone.
    """
    path, version = _one(config, application, output, publication)
    files_of(config, location(path).name, PutBack(windows, version))
    where = f"window_id between {windows.first} and {windows.last}"
    table = Table.open(path, version)
    rows = query(f'select * from t where {where} order by window_id, "offset"', t=table)
    return rows.select(table.schema.names)


def _one(config: Config, application: str, output: str, publication: int | None) -> tuple[str, int]:
    tables = read_published(config, application, publication)
    if output not in tables:
        known = f"It has: {', '.join(tables)}."
        raise InputError(f'application "{application}" has no published output "{output}"', hint=known)
    return tables[output]
