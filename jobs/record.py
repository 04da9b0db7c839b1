"""Records new tuples of a stream's source: submitted to Spark by `rewindow record` and by the
DAG record_streams.
"""

import argparse

from rewindow.recording.job import record_job
from rewindow.spark.job import leave, run_job

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stream", required=True, help="name of the stream in rewindow.toml")
    parser.add_argument("--sealed-to", help="seal the windows that end at or before this time")
    parser.add_argument(
        "--end",
        action="store_true",
        help="the stream has ended: seal it to its last tuple",
    )
    parser.add_argument("--seal-again", action="store_true", help="rebuild a lost table of seals")
    parser.add_argument("--reopen", action="store_true", help="move late tuples to their windows")
    parser.add_argument(
        "--replace",
        action="store_true",
        help="with --reopen: replace windows with the contents of the source",
    )
    parser.add_argument(
        "--start-over",
        action="store_true",
        help="delete the recorded stream and record it again",
    )
    options = parser.parse_args()
    leave(run_job(lambda: record_job(**vars(options))))
