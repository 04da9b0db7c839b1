"""Publishes a replay's range, undoes its publication, or withdraws one that was started:
submitted to Spark by the launcher.
"""

import argparse

from rewindow.publication.job import run_publication
from rewindow.spark.job import leave, run_job

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replay", required=True, help="id of the replay")
    act = parser.add_mutually_exclusive_group()
    act.add_argument(
        "--undo",
        dest="act",
        action="store_const",
        const="undo",
        help="undo its publication",
    )
    act.add_argument(
        "--withdraw",
        dest="act",
        action="store_const",
        const="withdraw",
        help="withdraw an interrupted publication",
    )
    parser.add_argument(
        "--accept",
        metavar="REASON",
        help="publish despite objections; the reason is recorded",
    )
    parser.add_argument("--who", help="name of the user who accepts")
    parser.add_argument(
        "--leave-out-damaged",
        action="store_true",
        help="leave out the windows of damaged files",
    )
    options = parser.parse_args()
    leave(
        run_job(
            lambda: run_publication(
                options.replay,
                options.act or "publish",
                accept=options.accept or None,
                who=options.who,
                leave_out_damaged=options.leave_out_damaged,
            )
        )
    )
