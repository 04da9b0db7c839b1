"""Runs three containers in three modes over the first ten days.

One container is killed, the others continue, and each output keeps the guarantee of its mode.
"""

from __future__ import annotations

import json

from rewindow.certificate.certificate import certify
from rewindow.demo.console import DemoConsole
from rewindow.errors import RewindowError
from rewindow.ledger import Ledger
from rewindow.pages.certificate_page import write_certificate
from rewindow.settings.config import Config
from rewindow.windows import WindowRange

WINDOWS = 240
GROUPS = 2
MODES = {
    "hourly_weather": "exactly_once",
    "delays": "at_least_once",
    "ranks": "at_most_once",
}
KILLED = "ranks"


def show_containers(
    config: Config,
    demo_console: DemoConsole,
    application: str,
    reference: str,
    windows: WindowRange,
) -> None:
    """Replays the given windows with a mode per operator, kills one container, and certifies the
    result.

    Args:
        config: current settings.
        demo_console: receives the commands and the results.
        application: the example.
        reference: id of an undisturbed replay of all windows.
        windows: all windows of the example.

    Raises:
        RewindowError: a promise is broken.
    """
    last = min(windows.last, windows.first + WINDOWS - 1)
    part = WindowRange(windows.first, last)
    arguments = ["replay", application, "--last", str(last)]
    size = str(-(-len(part) // GROUPS))
    arguments += ["--group-windows", size, "--checkpoint-windows", size]
    for operator, mode in MODES.items():
        arguments += ["--set", f"{operator}.mode={mode}"]
    # Rows of group 2 are written and not committed, so at most once loses that group.
    arguments += ["--crash", f"{KILLED}/materialised:2@1", "--json"]
    replay_id = json.loads(demo_console.run(*arguments))["replay"]
    ledger = Ledger.open(config.ledger_url)
    for row in ledger.replays.containers(replay_id):
        name = row.replay_id.partition("@")[2]
        is_killed = row.epoch > 1
        was = "killed once" if is_killed else "not disturbed"
        mode = row.mode.replace("_", " ")
        demo_console.say(f"container {name}, {mode}: {was}")
        if is_killed is not (name == KILLED):
            raise RewindowError(f'container "{name}" had {row.epoch} attempts')
    certificate = write_certificate(config, certify(config, reference, replay_id, windows=part))
    plan = ledger.replays.get(replay_id).read_plan()
    for output in plan.outputs:
        found = next(one for one in certificate.outputs if one.name == output.name)
        lost = found.classes.get("lost", 0)
        other = {}
        for kind, count in found.classes.items():
            if count and kind not in _ALLOWED:
                other[kind] = count
        # Only outputs of the killed container, and those downstream of it, may lose windows.
        may_lose = plan.may_lose and KILLED in output.upstream
        if other or (lost and not may_lose):
            raise RewindowError(f"output {output.name} violates its guarantee: {other or lost}")
        result = "equal to the undisturbed replay"
        if lost:
            result = f"{lost} windows are lost and listed"
        demo_console.say(f"holds: {output.name}: {result}; {output.reason}", style="green")


_ALLOWED = ("equal", "lost", "affected")
