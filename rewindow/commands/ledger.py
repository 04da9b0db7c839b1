"""`rewindow ledger`: maintains the ledger."""

from __future__ import annotations

import typer

from rewindow.commands.project import load_project
from rewindow.commands.screen import AsJson, out, print_facts, print_json
from rewindow.commands.subcommands import Subcommands
from rewindow.ledger import Ledger
from rewindow.ledger.rebuild import rebuild_ledger

app = typer.Typer(
    cls=Subcommands,
    no_args_is_help=True,
    add_completion=False,
    help="Rebuild or upgrade the ledger.",
)


@app.command()
def rebuild(as_json: AsJson = False) -> None:
    """Rebuild a lost ledger from the tables. Approvals and gate results cannot be restored.

    Examples:

        rewindow ledger rebuild
    """
    config = load_project()
    result = rebuild_ledger(config)
    if as_json:
        print_json(vars(result))
        return
    print_facts(vars(result))
    out.print("the ledger was rebuilt")


@app.command()
def upgrade() -> None:
    """Upgrade the ledger's schema. All commands that open the ledger do this automatically.

    Examples:

        rewindow ledger upgrade
    """
    Ledger.open(load_project().ledger_url)
    out.print("the ledger is up to date")
