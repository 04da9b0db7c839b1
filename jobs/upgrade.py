"""Repairs seals and lists of data files of streams: submitted to Spark by `rewindow streams
upgrade`.
"""

import argparse

from rewindow.recording.job import upgrade_job
from rewindow.spark.job import leave, run_job

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="streams or applications; all by default")
    options = parser.parse_args()
    leave(run_job(lambda: upgrade_job(options.names)))
