"""`python -m rewindow.embedded` is the supervisor; with arguments behind `airflow` it is Airflow's own command."""

import sys

from rewindow.config import Config
from rewindow.embedded.control import run_airflow
from rewindow.embedded.supervision import main

if __name__ == "__main__":
    sys.exit(run_airflow(Config.load(), sys.argv[2:]) if sys.argv[1:2] == ["airflow"] else main())
