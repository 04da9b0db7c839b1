"""Replays a planned range: one attempt, submitted to Spark by the launcher."""

import argparse

from rewindow.engine.job import replay
from rewindow.spark.job import leave, run_job

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replay", required=True, help="id of the replay, as planned")
    parser.add_argument(
        "--epoch",
        required=True,
        type=int,
        help="fencing number, assigned by the launcher",
    )
    options = parser.parse_args()
    leave(run_job(lambda: replay(options.replay, options.epoch)))
