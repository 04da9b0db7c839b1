#!/usr/bin/env bash
# Resolves pyproject.toml into requirements.lock. The lock names no registry: whoever installs chooses where from.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/environment.sh
.rewindow/uv/bin/uv pip compile pyproject.toml --all-extras --generate-hashes \
    --no-emit-index-url --no-emit-find-links --universal --python-version 3.11 \
    --custom-compile-command "make lock" --output-file requirements.lock "$@" >/dev/null
if grep -nE '[a-z]+://' requirements.lock; then
    echo "lock: requirements.lock names a registry" >&2
    exit 1
fi
