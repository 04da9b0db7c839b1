#!/usr/bin/env bash
# Starts docker-compose.yaml for real and proves it: records the example, replays a week of it on the Spark cluster
# through Airflow's API, kills a worker in the middle, and certifies the result equal to an undisturbed local replay.
# Needs an engine with the images debian:bookworm-slim and postgres at hand; leaves nothing behind.
#
#   scripts/compose-test.sh            KEEP=1 leaves all of it running, BUILT=1 takes the image as it is
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if docker compose version >/dev/null 2>&1; then compose=(docker compose); else compose=(docker-compose); fi
export COMPOSE_PROJECT_NAME=rewindow-test AIRFLOW_PORT=${AIRFLOW_PORT:-18080} SPARK_PORT=${SPARK_PORT:-18081}
secrets=$(mktemp -d)
export REWINDOW_SECRETS=$secrets
first=376954 last=377121

say() { printf '\n== %s (%d s)\n' "$*" "$SECONDS"; }
stop() {
    printf 'compose-test: %s\n' "$*" >&2
    exit 1
}
dc() { "${compose[@]}" "$@"; }
rewindow() { dc exec -T scheduler rewindow "$@"; }
sql() { dc exec -T postgres psql -U rewindow -d rewindow -At -c "$1"; }

finish() {
    local code=$?
    if [ "$code" != 0 ]; then dc logs --tail 30 2>/dev/null | tail -150 || true; fi
    if [ -z "${KEEP:-}" ]; then
        dc down --volumes --remove-orphans >/dev/null 2>&1 || true
        rm -rf "$secrets"
    fi
    [ "$code" != 0 ] || printf '\ncompose-test: passed in %d s\n' "$SECONDS"
}
trap finish EXIT

# api METHOD PATH [BODY]: asks Airflow as a user would, with the login of the secrets.
api() {
    dc exec -T api-server python - "$@" <<'PY'
import json
import sys
from pathlib import Path

from rewindow.embedded.api import call, login

method, path, *body = sys.argv[1:]
address = "http://127.0.0.1:8080"
token = login(address, "admin", Path("/run/secrets/airflow_password").read_text().strip())
status, answer = call(address, path, method=method, token=token, body=json.loads(body[0]) if body else None, seconds_max=60)
if status // 100 != 2:
    sys.exit(f"{method} {path}: {status} {answer}")
print(json.dumps(answer))
PY
}
field() { python3 -c 'import json, sys; value = json.load(sys.stdin)
for key in sys.argv[1:]: value = value[int(key) if key.isdigit() else key]
print(value)' "$@"; }

# until_ok SECONDS WHAT COMMAND...: repeats the command until it succeeds.
until_ok() {
    local limit=$((SECONDS + $1)) what=$2
    shift 2
    until "$@"; do
        [ "$SECONDS" -lt "$limit" ] || stop "timed out: $what"
        sleep 1
    done
}
all_healthy() {
    local service
    for service in postgres api-server scheduler dag-processor triggerer spark-master spark-worker; do
        local ids
        ids=$(dc ps -q "$service")
        [ -n "$ids" ] || return 1
        # shellcheck disable=SC2086
        ! docker inspect --format '{{.State.Health.Status}}' $ids | grep -qv '^healthy$' || return 1
    done
}

docker/make-secrets.sh
if [ -z "${BUILT:-}" ]; then
    say "build"
    dc build init
fi
say "up"
dc up -d
until_ok 300 "all services healthy" all_healthy
workers=$(dc ps -q spark-worker | wc -l)
[ "$workers" -ge 2 ] || stop "$workers workers, 2 wanted"

say "record, on the cluster of $workers workers"
rewindow record flights weather

say "an undisturbed replay of windows $first to $last, in one process"
dc exec -T -e 'REWINDOW_SPARK__MASTER=local[2]' scheduler \
    rewindow replay flight_delays --first "$first" --last "$last" --id undisturbed --group-windows 56

say "the same through Airflow, on the cluster, ledger in PostgreSQL"
known() { api GET /api/v2/dags/replay_windows >/dev/null 2>&1; }
until_ok 120 "the DAG is known" known
run=$(api POST /api/v2/dags/replay_windows/dagRuns "{\"logical_date\": null, \"conf\": {
    \"application\": \"flight_delays\", \"reason\": \"compose test\", \"range_as\": \"windows\", \"first_window\": $first,
    \"last_window\": $last, \"group_windows\": 28, \"mode\": \"exactly_once\", \"publish\": \"at_once\"}}" | field dag_run_id)
echo "run $run"
under_way() { [ "$(sql "SELECT count(*) FROM replays WHERE replay_id LIKE 'replay_windows%' AND mark >= 28" 2>/dev/null)" = 1 ]; }
until_ok 900 "the first commit groups" under_way
victim=$(dc ps -q spark-worker | sed -n 1p) # head would end before its input, which stops the script
docker kill "$victim" >/dev/null
mark=$(sql "SELECT mark FROM replays WHERE replay_id LIKE 'replay_windows%'")
say "worker ${victim:0:12} killed at mark $mark of $((last - first + 1))"
[ "$mark" -lt $((last - first + 1)) ] || stop "the worker was killed too late"

state_of_run() { api GET "/api/v2/dags/replay_windows/dagRuns/$run" | field state; }
ended() { case $(state_of_run) in success | failed) ;; *) return 1 ;; esac; }
until_ok 1800 "the run ends" ended
state=$(state_of_run)
say "the run ended: $state"
replay=$(sql "SELECT replay_id FROM replays WHERE replay_id LIKE 'replay_windows%'")
rewindow status "$replay"
[ "$state" = success ] || stop "the run failed"

say "certificate against the undisturbed replay"
rewindow certify "$replay" undisturbed
sql "SELECT replay_id, state, mark FROM replays ORDER BY 1"
