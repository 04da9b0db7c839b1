"""Where results lie: outside the repository, one folder a replay, written anew by each check of
it.
"""

from __future__ import annotations

from rewindow.location import Location
from rewindow.names import check_replay_id
from rewindow.settings.config import Config


def quality_folder(config: Config) -> Location:
    """Returns the folder of everything that the gate leaves behind."""
    return config.results / "quality"


def replay_folder(config: Config, replay_id: str) -> Location:
    """Returns the folder of a replay's pages and results."""
    return quality_folder(config) / "replays" / check_replay_id(replay_id)


def strength_file(config: Config, replay_id: str, output: str) -> Location:
    """Returns where it says which planted damages an output's suite would notice; beside the
    output's page.
    """
    return replay_folder(config, replay_id) / f"{output}.strength.json"


def findings_table(config: Config) -> Location:
    """Returns the Delta table that keeps every check of every run."""
    return quality_folder(config) / "findings"


def index_page(config: Config) -> Location:
    """Returns the page over time."""
    return quality_folder(config) / "index.html"
