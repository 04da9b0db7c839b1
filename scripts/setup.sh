#!/usr/bin/env bash
# Makes everything that Rewindow needs in .rewindow: a Python 3.11 environment as locked, Java 17 where it can be
# installed, Delta's jars, Spark's class archive. Each step is skipped when it is done for these very inputs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/environment.sh

home=$PWD/.rewindow
venv=$home/venv
python=$venv/bin/python
mkdir -p "$home/stamps"

say() { printf '\033[1m== %s\033[0m\n' "$*" >&2; }
stop() { printf 'setup: %s\n' "$*" >&2; exit 1; }

command -v sha256sum >/dev/null || sha256sum() { shasum -a 256; }
# key NAME INPUT...: a digest of the step's inputs (files by content, else words), the place included.
key() { { printf '%s\n' "$PWD" "$@"; for input in "$@"; do [ ! -f "$input" ] || cat "$input"; done; } | sha256sum | cut -c1-32; }
done_for() { [ "$(cat "$home/stamps/$1" 2>/dev/null)" = "$2" ]; }
mark_done() { printf '%s\n' "$2" >"$home/stamps/$1.new" && mv "$home/stamps/$1.new" "$home/stamps/$1"; }

# Two set-ups at once wait for each other.
if command -v flock >/dev/null; then
    exec 9>"$home/setup.lock"
    flock 9
fi

find_python() {
    local candidate
    for candidate in "${PYTHON:-}" python3.11 python3; do
        if [ -n "$candidate" ] && "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
            # Shims of version managers may change their mind in another folder: the real program is what counts.
            "$candidate" -c 'import sys; print(sys.executable)'
            return
        fi
    done
    for candidate in "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.11*/bin/python3.11; do
        if "$candidate" -c 'pass' 2>/dev/null; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    stop "Python 3.11 not found; install it (Debian: apt-get install python3.11 python3.11-venv) or name it: PYTHON=/path/python3.11 make setup"
}

make_environment() {
    local base
    if ! "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
        base=$(find_python)
        say "Python environment from $base"
        "$base" -c 'import ensurepip, venv' 2>/dev/null || stop "$base has no venv module (Debian: apt-get install python3.11-venv)"
        "$base" -m venv --clear "$venv"
    fi
    if ! "$home/uv/bin/uv" --version 2>/dev/null | grep -qF "$(sed -n 's/^uv==\([^ ]*\).*/\1/p' scripts/uv.txt)"; then
        rm -rf "$home/uv"
        "$python" -m pip install --quiet --no-input --disable-pip-version-check --no-deps --require-hashes \
            --target "$home/uv" -r scripts/uv.txt
    fi
    say "Python packages of requirements.lock"
    "$home/uv/bin/uv" pip sync --quiet --python "$python" --require-hashes --compile-bytecode requirements.lock
    "$home/uv/bin/uv" pip install --quiet --python "$python" --no-deps --build-constraints scripts/build.txt --editable .
}

install_java() {
    local root=""
    [ "$(id -u)" = 0 ] || root="sudo -n"
    if command -v apt-get >/dev/null && { [ -z "$root" ] || sudo -n true 2>/dev/null; }; then
        say "Java 17 from Debian's packages"
        # /usr/share/man may have been slimmed away, and the package's links need it.
        $root mkdir -p /usr/share/man/man1
        $root env DEBIAN_FRONTEND=noninteractive apt-get -qq update >"$home/java.log" 2>&1 || true
        $root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends openjdk-17-jre-headless \
            >>"$home/java.log" 2>&1 || true
    fi
    "$python" -m rewindow.spark.java || exit 1
}

stamp=$(key python requirements.lock scripts/uv.txt scripts/build.txt pyproject.toml setup.py)
if ! done_for python "$stamp" || ! "$python" -c pass 2>/dev/null || [ ! -x "$venv/bin/rewindow" ]; then
    make_environment
    mark_done python "$stamp"
fi

# Prints what is missing: "java", the names of jars.
missing() {
    "$python" - <<'PY'
from pathlib import Path

from rewindow.errors import ResourceError
from rewindow.spark.jars import missing_jars
from rewindow.spark.java import find_java

try:
    Path(".rewindow/java").write_text(f"{find_java()}\n")
except ResourceError:
    print("java")
print(*missing_jars(Path(".rewindow/jars")))
PY
}

lacking=$(missing)
case $lacking in
    java*) install_java >"$home/java" ;;
esac

stamp=$(key jars rewindow/jars.sha256)
if ! done_for jars "$stamp" || [[ $lacking == *.jar* ]]; then
    say "Delta's jars from Maven Central"
    "$venv/bin/rewindow" jars .rewindow/jars >&2
    mark_done jars "$stamp"
fi

stamp=$(key archive rewindow/jars.sha256 requirements.lock rewindow/spark/archive.py "$(cat "$home/java")")
if ! done_for archive "$stamp"; then
    say "Spark's class archive: later starts take half the time"
    # Only a matter of speed: where it cannot be made, Spark starts without it.
    "$python" -m rewindow.spark.archive >"$home/archive.log" 2>&1 </dev/null || printf 'setup: no class archive, see %s\n' "$home/archive.log" >&2
    mark_done archive "$stamp"
fi
