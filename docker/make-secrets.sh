#!/usr/bin/env bash
# Makes the secrets that docker-compose.yaml mounts, those that are not there yet. The folder is closed to others; the
# files in it are readable, because a container's user has another number than you.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=${REWINDOW_SECRETS:-.rewindow/secrets}
mkdir -p "$folder"
chmod 0700 "$folder"
random() { head -c "$1" /dev/urandom | base64 | tr '+/' '-_' | tr -d '\n'; }
make_secret() {
    [ -s "$folder/$1" ] && return
    printf '%s' "$2" >"$folder/$1.new"
    chmod 0444 "$folder/$1.new"
    mv "$folder/$1.new" "$folder/$1"
}
make_secret postgres_password "$(random 24)"
make_secret airflow_database_password "$(random 24)"
make_secret ledger_password "$(random 24)"
make_secret spark_secret "$(random 33)"
make_secret airflow_password "$(random 12)"
make_secret jwt_secret "$(random 66)"
make_secret api_secret_key "$(random 33)"
make_secret fernet_key "$(random 32)"
