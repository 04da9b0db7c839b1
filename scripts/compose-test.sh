#!/usr/bin/env bash
# Starts docker-compose.yaml for real and proves it: records the example, replays a week of it on the Spark cluster
# through Airflow's API, kills a worker in the middle, and certifies the result equal to an undisturbed local replay.
# Needs a Docker engine with compose; installs nothing itself and removes its containers and volumes.
#
#   scripts/compose-test.sh            KEEP=1 leaves all of it running, BUILT=1 takes the image as it is
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

missing() {
    printf 'compose-test: %s\n' "$*" >&2
    exit 2
}
command -v docker >/dev/null || missing "the command docker is missing: install Docker's engine and its compose"
docker info >/dev/null 2>&1 || missing "no Docker engine answers: start it, or add this user to the group docker"
if docker compose version >/dev/null 2>&1; then
    compose=(docker compose)
elif command -v docker-compose >/dev/null; then
    compose=(docker-compose)
else
    missing "neither 'docker compose' nor docker-compose is installed"
fi
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

# api METHOD PATH [BODY]: asks Airflow as a user would. The password comes from the secrets of this run and goes in by
# standard input: no service but `init` has it, and it must not appear on a command line.
api_call='
import json
import sys

from rewindow.embedded.api import call, login

method, path, *body = sys.argv[1:]
address = "http://127.0.0.1:8080"
token = login(address, "admin", sys.stdin.read().strip())
sent = json.loads(body[0]) if body else None
status, answer = call(address, path, method=method, token=token, body=sent, seconds_max=60)
if status // 100 != 2:
    sys.exit(f"{method} {path}: {status} {answer}")
print(json.dumps(answer))
'
api() { dc exec -T api-server python -c "$api_call" "$@" <"$secrets/airflow_password"; }
field() { python3 -c 'import json, sys; value = json.load(sys.stdin)
for key in sys.argv[1:]: value = value[int(key) if key.isdigit() else key]
print(value)' "$@"; }

# until_ok SECONDS WHAT COMMAND...: repeats the command until it succeeds; reports its last output if it never does.
until_ok() {
    local limit=$((SECONDS + $1)) what=$2 output
    shift 2
    until output=$("$@" 2>&1); do
        [ "$SECONDS" -lt "$limit" ] || stop "timed out: $what; last output: ${output:-none}"
        sleep 1
    done
}
all_healthy() {
    local service
    for service in postgres api-server scheduler dag-processor triggerer spark-master spark-worker; do
        local ids health
        ids=$(dc ps -q "$service")
        [ -n "$ids" ] || { echo "$service: no container" && return 1; }
        # shellcheck disable=SC2086
        health=$(docker inspect --format "$service: {{.State.Health.Status}}" $ids) || return 1
        ! grep -v ': healthy$' <<<"$health" || return 1
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
known() { api GET /api/v2/dags/replay_windows; }
until_ok 120 "the DAG is known" known
run=$(api POST /api/v2/dags/replay_windows/dagRuns "{\"logical_date\": null, \"conf\": {
    \"application\": \"flight_delays\", \"reason\": \"compose test\", \"range_as\": \"windows\", \"first_window\": $first,
    \"last_window\": $last, \"group_windows\": 28, \"mode\": \"exactly_once\", \"publish\": \"at_once\"}}" | field dag_run_id)
echo "run $run"
under_way() { sql "SELECT replay_id, state, mark FROM replays WHERE replay_id LIKE 'replay_windows%'" | awk -F '|' '{ print } $3 >= 28 { found = 1 } END { exit !found }'; }
until_ok 900 "the first commit groups" under_way
victim=$(dc ps -q spark-worker | sed -n 1p) # head would end before its input, which stops the script
docker kill "$victim" >/dev/null
mark=$(sql "SELECT mark FROM replays WHERE replay_id LIKE 'replay_windows%'")
say "worker ${victim:0:12} killed at mark $mark of $((last - first + 1))"
[ "$mark" -lt $((last - first + 1)) ] || stop "the worker was killed too late"

state_of_run() { api GET "/api/v2/dags/replay_windows/dagRuns/$run" | field state; }
ended() { state_of_run | grep -x 'success\|failed'; }
until_ok 1800 "the run ends" ended
state=$(state_of_run)
say "the run ended: $state"
replay=$(sql "SELECT replay_id FROM replays WHERE replay_id LIKE 'replay_windows%'")
rewindow status "$replay"
[ "$state" = success ] || stop "the run failed"

say "certificate against the undisturbed replay"
rewindow certify "$replay" undisturbed
sql "SELECT replay_id, state, mark FROM replays ORDER BY 1"
