#!/usr/bin/env bash
# Makes the site of docs/ in .rewindow/site, without network; a broken link or reference fails. The page on the coverage of
# the rules is written first.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/environment.sh
python scripts/rules.py
exec python -m sphinx --builder html --quiet --fail-on-warning --keep-going \
    --doctree-dir .rewindow/site/.doctrees docs "${1:-.rewindow/site}"
