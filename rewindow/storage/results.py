"""The paths of results.

They are outside of the repository, with one folder per replay that each check of the replay
rewrites.
"""

from __future__ import annotations

from rewindow.location import Location
from rewindow.names import check_replay_id
from rewindow.settings.config import Config


def quality_folder(config: Config) -> Location:
    """Returns the folder of all results of quality checks."""
    return config.results / "quality"


def replay_folder(config: Config, replay_id: str) -> Location:
    """Returns the folder of a replay's pages and results."""
    return quality_folder(config) / "replays" / check_replay_id(replay_id)


def strength_file(config: Config, replay_id: str, output: str) -> Location:
    """Returns the path of the file that lists which planted damages an output's suite detects.

    It is next to the output's page.
    """
    return replay_folder(config, replay_id) / f"{output}.strength.json"


def findings_table(config: Config) -> Location:
    """Returns the path of the Delta table with all checks of all runs."""
    return quality_folder(config) / "findings"


def index_page(config: Config) -> Location:
    """Returns the path of the page with results over time."""
    return quality_folder(config) / "index.html"
