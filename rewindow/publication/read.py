"""Pinned reading: several published tables at one instant, that of a publication. No JVM."""

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
    """Returns output to (path, version) of its published table, all as of one publication.

    Tables are committed one after the other, so that their newest versions may show half a
    publication; these never do.

    Args:
        publication: number of a publication or an undo; the newest that is closed unless given.

    Raises:
        InputError: nothing is published, or there is no such closed publication.
    """
    if not isinstance(application, str):
        raise InputError(
            f"application {application!r} is no text",
            hint='Name one application, such as project.read_published("alarms").',
        )
    ledger = Ledger.open(config.ledger_url)
    every = ledger.publications.newest(application=application, limit=1_000_000)
    closed = [one for one in every if one.closed_at is not None and one.withdrawn is None]
    if publication is not None and publication not in {one.number for one in closed}:
        newest = f"Its newest is {closed[0].number}." if closed else ""
        raise InputError(
            f'publication {publication} of "{application}" is not there or not closed',
            detail=newest,
        )
    found: dict[str, tuple[str, int]] = {}
    for one in closed:
        for table in one.tables:
            output = table.name.removeprefix(f"{application}.")
            if (publication is None or one.number <= publication) and kind_of(
                table.name
            ) is Kind.DATA:
                path = str(config.stream_table(table.name))
                if output not in found:
                    version = table.version_after
                    found[output] = (
                        path,
                        version_of(config, table.name, one.number) if version is None else version,
                    )
    if not found:
        upstream, stop, output = application.partition(".")
        hint = "rewindow publish REPLAY makes it so."
        if stop:
            hint = (
                f'"{application}" is a stream: name its application, "{upstream}", and take '
                f'the output "{output}".'
            )
        raise InputError(f'application "{application}" is not published', hint=hint)
    return found
