"""Publishes a replay's range, or takes its publication back: one Spark process, submitted by the launcher."""

import argparse

from rewindow.engine.job import leave, run_job
from rewindow.publication.job import run_publication

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replay", required=True, help="id of the replay")
    parser.add_argument("--undo", action="store_true", help="take its publication back")
    parser.add_argument(
        "--accept", metavar="REASON", help="publish although the gate has not passed; the reason is kept"
    )
    parser.add_argument("--who", help="who accepts")
    options = parser.parse_args()
    leave(
        run_job(
            lambda: run_publication(
                options.replay, take_back=options.undo, accept=options.accept or None, who=options.who
            )
        )
    )
