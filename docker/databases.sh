#!/bin/bash
# Run once by a new database: a user and a database for Airflow, and one for the ledger, each closed to the other.
# In a volume that is older: docker compose exec -u postgres postgres bash /docker-entrypoint-initdb.d/databases.sh
set -euo pipefail
make() {
    psql -v ON_ERROR_STOP=1 -q -U "$POSTGRES_USER" -d postgres -v name="$1" -v secret="${SECRETS:-/run/secrets}/$2" <<'SQL'
\set password `cat :'secret'`
CREATE ROLE :"name" LOGIN PASSWORD :'password';
CREATE DATABASE :"name" OWNER :"name";
REVOKE ALL ON DATABASE :"name" FROM PUBLIC;
SQL
}
make airflow airflow_database_password
make rewindow ledger_password
