#!/usr/bin/env bash
# The Python package of clients/python, as its users install it:
#
#   scripts/python.sh [PYTEST..]   builds its wheel, installs it into empty environments, with the lowest and the newest
#                                  redis-py, and runs its tests there (TETHER_SERVER, TETHER_MODULE; PYTHON=python3.13)
#   scripts/python.sh --lint       ruff, mypy; of all other Python here, ruff
#   scripts/python.sh --pack       what would be published, in target/python/dist
#   scripts/python.sh --program    prints the path of a Python that has the package, with the newest redis-py
#   scripts/python.sh --vectors          the vectors of clients/protocol, with the newest redis-py
#   scripts/python.sh --conform [ARGS]   the cases of clients/protocol/conform, with the newest redis-py
#
# The environments are in target/python/, from PyPI. The last line of a run is in cargo's form, which .ci/run sums.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

ROOT=$PWD/target/python
SOURCES=$PWD/clients/python
PYTHON=${PYTHON:-python3}
WITHIN=$PWD/scripts/within.sh

say() { printf 'python: %s\n' "$*" >&2; }

# environment NAME PACKAGE...: an environment with just these, made anew when they are others.
environment() {
    local name=$1 stamp
    shift
    stamp="$("$PYTHON" --version) $*"
    [ "$(cat "$ROOT/$name/stamp" 2>/dev/null)" != "$stamp" ] || return 0
    say "making the environment $name: $*"
    rm -rf "${ROOT:?}/$name"
    "$PYTHON" -m venv "$ROOT/$name"
    "$ROOT/$name/bin/python" -m pip -q --disable-pip-version-check install "$@"
    echo "$stamp" > "$ROOT/$name/stamp"
}

[ "$PYTHON" != python3 ] || scripts/need.sh python
mkdir -p "$ROOT"

if [ "${1:-}" = --lint ]; then
    environment lint redis==8.1.0 pytest==8.4.2 mypy==1.18.2 ruff==0.14.0
    cd "$SOURCES"
    "$ROOT/lint/bin/ruff" format --no-cache --config pyproject.toml --check . ../protocol ../../packaging
    "$ROOT/lint/bin/ruff" check --no-cache --config pyproject.toml --quiet .
    "$ROOT/lint/bin/ruff" check --no-cache --config pyproject.toml --quiet --extend-ignore D1 ../protocol ../../packaging # programs
    wide=(--no-cache --config pyproject.toml --config line-length=132) others=(../c/tests ../../examples ../../scripts ../../tests)
    "$ROOT/lint/bin/ruff" format "${wide[@]}" --check "${others[@]}"
    "$ROOT/lint/bin/ruff" check "${wide[@]}" --quiet --extend-ignore D1,PT,E731 "${others[@]}"
    exec "$ROOT/lint/bin/mypy" --cache-dir "$ROOT/lint/cache"
fi

# Built from a copy, since setuptools leaves its own files beside the sources; in a folder of its own for each purpose, since one run
# may pack while another one installs.
built=$ROOT/wheel
[ "${1:-}" != --pack ] || built=$ROOT/dist
environment build build==1.3.0 setuptools==80.9.0 wheel==0.45.1 twine==6.2.0
rm -rf "$built" "$built-source"
cp -R "$SOURCES" "$built-source"
"$ROOT/build/bin/python" -m build --no-isolation --outdir "$built" "$built-source" > "$built.log" || { cat "$built.log"; exit 1; }
"$ROOT/build/bin/python" -m twine check --strict "$built"/* >&2
[ "${1:-}" != --pack ] || exit 0

# The newest that this Python can have: redis-py 8 needs Python 3.10.
newest=8.1.0 celery=5.7.0 django=5.2.8 fastapi=0.121.3
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || newest=7.0.1 celery=5.6.3 django=4.2.26

# installed REDIS: an environment with this redis-py, what the tests need, and the wheel.
installed() {
    environment "redis-$1" "redis==$1" pytest==8.4.2 "celery==$celery" apscheduler==3.11.3 "django==$django" "fastapi==$fastapi" httpx==0.28.1 gevent==25.9.1 \
        pottery==3.0.1 python-redis-lock==4.0.1 sherlock==0.4.1
    "$ROOT/redis-$1/bin/python" -m pip -q --disable-pip-version-check install --force-reinstall --no-deps "$built"/*.whl
}

if [ "${1:-}" = --program ]; then
    installed "$newest"
    echo "$ROOT/redis-$newest/bin/python"
    exit
fi
if [ "${1:-}" = --vectors ]; then
    installed "$newest"
    exec "$ROOT/redis-$newest/bin/python" clients/protocol/loaders/python.py
fi
# shellcheck source=scripts/tested.sh
. scripts/tested.sh
if [ "${1:-}" = --conform ]; then
    shift
    installed "$newest"
    exec "$ROOT/redis-$newest/bin/python" clients/protocol/conform/conform.py --server "$TETHER_SERVER" --module "$TETHER_MODULE" "$@" \
        -- "$ROOT/redis-$newest/bin/python" clients/protocol/conform/adapters/python.py
fi

failed=()
for redis in 5.0.0 "$newest"; do
    installed "$redis"
    printf '\n==== tether-locks with redis-py %s ====\n\n' "$redis"
    (cd "$SOURCES" && "$WITHIN" 1500 "$ROOT/redis-$redis/bin/python" -B -m pytest "$@") || failed+=("$redis")
done
[ ${#failed[@]} = 0 ] || { say "failed with redis-py ${failed[*]}"; exit 1; }
