#!/bin/bash
# Puts secrets where their users look for them, so that no address, variable or command line holds one: passwords of the
# databases for every PostgreSQL client, the secret of the Spark cluster for its master and workers.
set -euo pipefail
umask 077
secrets=${SECRETS:-/run/secrets}
login() {
    [ -r "$secrets/$2" ] || return 0
    printf 'postgres:5432:%s:%s:%s\n' "$1" "$1" "$(sed 's/[\\:]/\\&/g' "$secrets/$2")" >>"$PGPASSFILE"
}
rm -f "$PGPASSFILE"
login airflow airflow_database_password
login rewindow ledger_password
if [ -r "$secrets/spark_secret" ]; then
    printf 'spark.authenticate true\nspark.authenticate.secret %s\nspark.network.crypto.enabled true\n' \
        "$(cat "$secrets/spark_secret")" >"${SPARK_DAEMON_CONF:-/tmp/spark-daemon.conf}"
fi
umask 022
exec "$@"
