"""`python -m rewindow.embedded` runs the supervisor, and `python -m rewindow.embedded airflow
ARGUMENTS` runs Airflow's command line.
"""

import sys

from rewindow.embedded.control import run_airflow
from rewindow.embedded.supervision import main
from rewindow.settings.config import Config

if __name__ == "__main__":
    sys.exit(run_airflow(Config.load(), sys.argv[2:]) if sys.argv[1:2] == ["airflow"] else main())
