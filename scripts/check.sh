#!/usr/bin/env bash
# Everything that reads the code without running it. Goes on after a failure, so that one run says all.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
failed=()
run() {
    local name=$1 began=$SECONDS
    shift
    if "$@"; then printf 'ok      %-14s %ds\n' "$name" $((SECONDS - began)); else failed+=("$name"); fi
}
run format ruff format --check --quiet .
run lint ruff check --quiet .
run types mypy
run borders lint-imports
run lengths python scripts/lengths.py
run spelling codespell
run shell bash -n scripts/*.sh .ci/run
if [ ${#failed[@]} -gt 0 ]; then
    printf 'failed: %s\n' "${failed[*]}" >&2
    exit 1
fi
