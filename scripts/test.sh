#!/usr/bin/env bash
# Cargo's tests against the module that is compiled with them, which looks after itself: it stops where a number runs over, and
# where the server is called while something of the shell's is lent.
#
#   scripts/test.sh                     the module and its documents, on the server on PATH (or SERVER=...)
#   scripts/test.sh --clients           the clients: Rust, the command line, Python; on the same server
#   scripts/test.sh --soak [ARG..]      the long ones of the module, on the same server; ARGs are cargo test's
#   scripts/test.sh --soak-clients [ARG..]   the long ones of the clients
#   scripts/test.sh --servers [NAME..]  the integration tests on these servers; unless given, on the oldest and the newest
#   scripts/test.sh --matrix            the integration tests on each server of the matrix
#
# The tests find the server's program in the environment, TETHER_SERVER; the module lies beside them, unless TETHER_MODULE names one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Always these two together: cargo compiles a crate anew where other packages ask it for other features.
module=(--package tether --package tether-testing)
clients=(--package tether-client --package tether-cli)

heading() { printf '\n==== %s ====\n\n' "$*"; }

mode=${1:-}
[ $# -eq 0 ] || shift

# For the tests of examples/ and of the dead peer. Without them the other tests still tell something.
tools=(redis-cli)
things=()
[ "$mode" = --clients ] || { tools+=(node) things=(python hiredis node); }
[ "$(uname -s)" != Linux ] || tools+=(ip)
scripts/need.sh "${tools[@]}" || echo "test: going on without; the tests that need it will fail" >&2
[ ${#things[@]} -eq 0 ] || scripts/servers.sh "${things[@]}" || echo "test: going on without; the tests of the examples that need it will fail" >&2
export PATH=$PATH:/usr/sbin:/sbin # an ordinary user's PATH on Debian lacks `ip`

scripts/need.sh cargo cc libclang
# Tests with servers mostly wait for them.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-8}

if [ "$mode" != --servers ] && [ "$mode" != --matrix ]; then
    [ -n "${SERVER:-}" ] || scripts/need.sh server
    server=${SERVER:-$(scripts/need.sh --server-path)}
    TETHER_SERVER=$(cd "$(dirname "$server")" && pwd)/${server##*/}
    export TETHER_SERVER
    heading "tests on $("$TETHER_SERVER" --version)"
    case $mode in
        --soak) exec cargo test --no-fail-fast "${module[@]}" "$@" -- --ignored ;;
        --soak-clients) exec cargo test --no-fail-fast "${clients[@]}" "$@" -- --ignored ;;
        "") exec cargo test --no-fail-fast "${module[@]}" ;;
        --clients) ;;
        *) echo "test: no such mode: $mode" >&2; exit 2 ;;
    esac
    status=0
    cargo test --no-fail-fast "${clients[@]}" || status=$?
    heading "tests of clients/python"
    target=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
    TETHER_MODULE=${TETHER_MODULE:-$target/debug/deps/libtether.so} scripts/python.sh || status=$?
    exit $status
fi

names=("$@")
list=--list
if [ "$mode" = --matrix ]; then
    scripts/servers.sh --matrix
    list=--list-all
else
    scripts/servers.sh "$@"
fi
[ ${#names[@]} -gt 0 ] || IFS=$'\n' read -r -d '' -a names < <(scripts/servers.sh $list) || true
[ ${#names[@]} -gt 0 ] || { echo "test-servers: no server to test with" >&2; exit 1; }

# Those that talk to a server. The others are the same on all of them, and `make test` runs them.
with_servers=(--test server --test locks --test sessions --test failover --test cluster --test history --test examples --test readme --test reference)
failed=()
for name in "${names[@]}"; do
    export TETHER_SERVER=$PWD/.servers/$name/redis-server
    heading "integration tests on $name: $("$TETHER_SERVER" --version)"
    cargo test --no-fail-fast "${module[@]}" "${with_servers[@]}" || failed+=("$name")
done

heading "servers tested: ${names[*]}"
if [ ${#failed[@]} -gt 0 ]; then
    echo "FAILED on: ${failed[*]}"
    exit 1
fi
echo "passed on all of them"
