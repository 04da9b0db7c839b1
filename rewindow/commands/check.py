"""`rewindow check`: judge a replay's output by its expectations."""

from __future__ import annotations

from rewindow.commands.screen import AsJson, ReplayId, err, out, print_json
from rewindow.config import Config
from rewindow.errors import GateError


def check(replay_id: ReplayId, as_json: AsJson = False) -> None:
    """Run the gate on a replay's staged output. Exit code 0 only when it passed.

    Examples:

        rewindow check flight_delays-376949-385704-1f2e3d
    """
    from rewindow.quality import check as run_gate

    try:
        result = run_gate(Config.load(), replay_id, on_line=lambda line: err.print(line, style="dim", markup=False))
    except GateError as error:
        if as_json:
            print_json({"replay": replay_id, "verdict": "failed", "message": str(error)})
        raise
    if as_json:
        print_json(result.as_dict())
        return
    out.print(f"gate [green]passed[/green]. Next: rewindow publish {replay_id}")
