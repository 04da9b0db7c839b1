#!/usr/bin/env bash
# Makes the site of docs/ in .rewindow/site, without network; a broken link or reference fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/environment.sh
exec python -m sphinx --builder html --quiet --fail-on-warning --keep-going \
    --doctree-dir .rewindow/site/.doctrees docs "${1:-.rewindow/site}"
