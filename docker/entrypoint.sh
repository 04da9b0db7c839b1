#!/bin/bash
# Puts the database's password where every PostgreSQL client looks for it, so that no address and no variable holds it.
set -euo pipefail
if [ -r /run/secrets/postgres_password ]; then
    password=$(sed 's/[\\:]/\\&/g' /run/secrets/postgres_password)
    (umask 077 && printf 'postgres:5432:*:rewindow:%s\n' "$password" >"$PGPASSFILE")
fi
exec "$@"
