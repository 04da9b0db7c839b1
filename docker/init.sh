#!/bin/bash
# Brings both databases up to date and keeps Airflow's login; may run again at any time.
set -euo pipefail
airflow db migrate
airflow pools set spark "${SPARK_SLOTS:-2}" "Spark jobs at a time" >/dev/null
python - <<'PY'
import json
import os
from pathlib import Path

target = Path(os.environ["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"])
password = Path("/run/secrets/airflow_password").read_text().strip()
draft = target.with_suffix(".new")
draft.unlink(missing_ok=True)
with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
    json.dump({"admin": password}, file)
draft.replace(target)
PY
