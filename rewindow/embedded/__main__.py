"""`python -m rewindow.embedded` is the supervisor; with arguments behind `airflow` it is Airflow's
own command.
"""

import sys

from rewindow.embedded.control import run_airflow
from rewindow.embedded.supervision import main
from rewindow.settings.config import Config

if __name__ == "__main__":
    sys.exit(run_airflow(Config.load(), sys.argv[2:]) if sys.argv[1:2] == ["airflow"] else main())
