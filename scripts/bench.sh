#!/usr/bin/env bash
# Measures everything, side by side with all that it competes with, and writes docs/benchmarks.md and its pictures.
#
#   scripts/bench.sh                  all of it: about an hour on a machine that does nothing else
#   scripts/bench.sh peers scale      some parts; benches/servers/parts.rs has them all
#   scripts/bench.sh acks quorum --merge   some parts, whose sections are renewed in docs/benchmarks.md
#   scripts/bench.sh --short          a tenth of everything, to see that it works
#   scripts/bench.sh java             only the Java client beside the others' real clients, whose section is renewed in docs/benchmarks.md;
#                                     java --short renews nothing
#
# What cannot be installed is left out, and said. Nothing is started as a service: every server is the benchmark's own,
# in a temporary folder. SERVERS names others of the matrix than Redis 7.0, Redis 8.0 and Valkey 9.1.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

for what in valgrind postgresql etcd zookeeper; do
    scripts/need.sh "$what" || echo "bench: SKIPPED $what, which cannot be installed here" >&2
done
export TETHER_SERVERS=${SERVERS:-redis-7.0 redis-8.0 valkey-9.1}
# shellcheck disable=SC2086 # a list of words
scripts/servers.sh $TETHER_SERVERS || echo "bench: going on with the servers that could be fetched" >&2
scripts/build.sh

# java [ARG..]: the Java clients. Unless something else is asked for, it renews their section of the page.
java() {
    TETHER_SERVER=${TETHER_SERVER:-$(scripts/need.sh --server-path)}
    export TETHER_SERVER
    [ "$#" -eq 0 ] || { scripts/java.sh --bench "$@"; return; }
    scripts/java.sh --bench --write "$PWD/docs/benchmarks.md"
    cargo bench --bench servers -- --prose
}

export TETHER_MODULE=$PWD/target/release/libtether.so
if [ "${1:-}" = java ]; then
    shift
    java "$@"
    exit
fi
# What a module costs that does nothing: the benchmarks look for it beside themselves.
cargo build --package tether --release --example bare
cargo bench --bench servers -- "$@"
# A whole run has written the page anew.
[ "$#" -gt 0 ] || java
