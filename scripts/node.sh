#!/usr/bin/env bash
# The Node.js package of clients/node:
#
#   scripts/node.sh [TEST..]       builds it and runs its tests, or those of these names (TETHER_SERVER, TETHER_MODULE,
#                                  TETHER_PROGRAM: the program tether; TETHER_STEPS=100000 cancelled requests, TETHER_FAULTS=300)
#   scripts/node.sh --lint         biome: format and lint; the compiler's own checks
#   scripts/node.sh --vectors      of these tests, the vectors of clients/protocol, without a server
#   scripts/node.sh --conform [..] clients/protocol/conform with its adapter; arguments are conform's own. 300 faults:
#                                  TETHER_FAULTS=300 scripts/node.sh --conform --only faults
#   scripts/node.sh --pack         what `npm publish` would publish
#
# Its developers' tools are in clients/node/node_modules, from npm. The last line of a run is in cargo's form, which
# .ci/run sums.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

ROOT=$PWD

scripts/need.sh node-20 npm
case ${1:-} in
    --vectors | --lint | --pack) ;;
    # shellcheck source=scripts/tested.sh
    *) . scripts/tested.sh ;;
esac
cd clients/node
[ node_modules/.package-lock.json -nt package-lock.json ] || npm ci --no-audit --no-fund >&2

case ${1:-} in
    --lint)
        node_modules/.bin/tsc --noEmit
        exec node_modules/.bin/biome ci --colors=off --error-on-warnings --config-path=. . ../protocol/conform/adapters/node.mjs
        ;;
    --pack)
        exec npm publish --dry-run
        ;;
esac

tests='*'
[ "${1:-}" != --vectors ] || { shift; tests=vectors; }
rm -rf dist
node_modules/.bin/tsc
if [ "${1:-}" = --conform ]; then
    shift
    exec python3 ../protocol/conform/conform.py --server "$TETHER_SERVER" --module "$TETHER_MODULE" "$@" -- node ../protocol/conform/adapters/node.mjs
fi

report=$(mktemp)
trap 'rm -f "$report"' EXIT
only=() limit=()
# What hangs: a file of tests that takes longer is stopped, and named.
[ -n "${TETHER_STEPS:-}${TETHER_FAULTS:-}" ] || limit=(--test-timeout=600000)
for name in "$@"; do only+=(--test-name-pattern "$name"); done
# shellcheck disable=SC2086 # a pattern
node --test "${limit[@]}" "${only[@]}" --test-reporter=spec dist/test/$tests.test.js | tee "$report" || true
count() { sed -n "s/^ℹ $1 //p" "$report"; }
failed=$(($(count fail) + $(count cancelled)))
[ "$failed" = 0 ] && word=ok || word=FAILED
echo "test result: $word. $(count pass) passed; $failed failed; $(count skipped) ignored"
[ "$failed" = 0 ]
