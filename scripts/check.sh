#!/usr/bin/env bash
# Runs every check that reads the code without running it. Continues after a failure, so that one run reports all.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/environment.sh
failed=()
run() {
    local name=$1 began=$SECONDS output
    shift
    if output=$("$@" 2>&1); then
        printf 'ok      %-10s %3d s\n' "$name" $((SECONDS - began))
    else
        printf '%s\nfailed  %-10s %3d s\n' "$output" "$name" $((SECONDS - began))
        failed+=("$name")
    fi
}
run format ruff format --check --quiet --output-format concise .
run lint ruff check --quiet --output-format concise .
run types mypy
run borders lint-imports
run names python scripts/class_names.py
run prose python scripts/prose.py --check
run density python scripts/density.py --check
# A shallow or detached clone may lack origin/main or the commit at which the branch started.
if base=$(git merge-base HEAD origin/main 2>/dev/null); then
    run commits python scripts/prose.py --commits "$base..HEAD"
else
    echo 'left out  commits: this clone has no common commit with origin/main'
fi
run spelling codespell
run rules python scripts/rules.py --check
if python -c 'import furo, myst_parser, sphinx' 2>/dev/null; then
    run docs scripts/docs.sh
else
    echo 'left out  docs: Sphinx is not installed, run make setup'
fi
run shell bash -n scripts/*.sh .ci/run
if [ ${#failed[@]} -gt 0 ]; then
    printf 'failed: %s\n' "${failed[*]}" >&2
    exit 1
fi
