"""Reads several published tables at one consistent point, namely as of one publication. No JVM."""

from __future__ import annotations

from rewindow.errors import InputError
from rewindow.ledger import Ledger
from rewindow.publication.commits import version_of
from rewindow.settings.config import Config
from rewindow.storage.published_tables import Kind, kind_of


def read_published(
    config: Config,
    application: str,
    publication: int | None = None,
) -> dict[str, tuple[str, int]]:
    """Returns the path and the version of each output's published table, all as of one publication.

    Tables are committed one after the other, so their newest versions may show half of a
    publication. The returned versions never do.

    Args:
        config: current settings.
        application: the application.
        publication: number of a publication or an undo; by default the newest that is closed.

    Raises:
        InputError: nothing is published, or the number is not that of a closed publication.
    """
    if not isinstance(application, str):
        raise InputError(
            f"application must be a name, not {application!r}",
            hint='Name one application, such as project.read_published("alarms").',
        )
    ledger = Ledger.open(config.ledger_url)
    every = ledger.publications.newest(application=application, limit=1_000_000)
    closed = [entry for entry in every if entry.closed_at is not None and entry.withdrawn is None]
    if publication is not None and publication not in {entry.number for entry in closed}:
        newest = f"Its newest is {closed[0].number}." if closed else ""
        raise InputError(
            f'publication {publication} of "{application}" does not exist or is not closed',
            detail=newest,
        )
    tables: dict[str, tuple[str, int]] = {}
    for entry in closed:
        for table in entry.tables:
            output = table.name.removeprefix(f"{application}.")
            if (publication is None or entry.number <= publication) and kind_of(
                table.name
            ) is Kind.DATA:
                path = str(config.stream_table(table.name))
                if output not in tables:
                    version = table.version_after
                    if version is None:
                        version = version_of(config, table.name, entry.number)
                    tables[output] = (path, version)
    if not tables:
        upstream, stop, output = application.partition(".")
        hint = "Publish a replay of it: rewindow publish REPLAY"
        if stop:
            hint = (
                f'"{application}" is a stream: pass its application, "{upstream}", and use '
                f'the output "{output}".'
            )
        raise InputError(f'application "{application}" is not published', hint=hint)
    return tables
