"""`rewindow check`: judge a replay's output by its expectations."""

from __future__ import annotations

from rich.markup import escape

from rewindow.commands.project import load_project
from rewindow.commands.screen import AsJson, JobScreen, ReplayId, out, print_json
from rewindow.errors import GateError


def check(replay_id: ReplayId, as_json: AsJson = False) -> None:
    """Run the gate on a replay's staged output. Exit code 0 only when it passed.

    Examples:

        rewindow check flight_delays-376949-385704-1f2e3d
    """
    from rewindow.pages.gate_pages import write_gate_pages
    from rewindow.quality import check as run_gate

    config = load_project()
    result = run_gate(config, replay_id, JobScreen())
    write_gate_pages(config, result)
    if as_json:
        print_json(result.to_dict() | {"folder": str(result.folder)})
    if result.verdict != "passed":
        raise GateError(
            f'gate of replay "{replay_id}" did not pass',
            detail="The range stays staged and unpublished.",
            hint=f"See {result.outputs[0].docs.parent}; publish it all the same with: "
            f'rewindow publish {replay_id} --accept "REASON"',
        )
    if not as_json:
        out.print(f"gate [green]passed[/green]. Next: rewindow publish {escape(replay_id)}")
