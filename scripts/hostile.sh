#!/usr/bin/env bash
# An adversary's workbench: one client builds whatever could make the module slow, and strikes, while another one's PINGs are
# timed (benches/servers/hostile/). Fails if one waits for more server CPU than it may. Where the server's own commands make
# the same command slow (SWAPDB of keys that WATCH watches), that is measured, too, and four times as much may be. A slow
# machine may take longer: how slow it is, is measured before each strike.
#
#   scripts/hostile.sh           all attacks, as large as can be, on four servers of the matrix
#   scripts/hostile.sh --short   a third as large, once instead of three times, so it may take 1.3 times as long: under a
#                                minute a server
#
# SERVERS names others of the matrix. TETHER_ATTACKS="LOCK.MINE" only runs attacks whose names contain that.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export TETHER_SERVERS=${SERVERS:-redis-7.0 redis-8.0 valkey-8.0 valkey-9.1}
# shellcheck disable=SC2086 # a list of words
scripts/servers.sh $TETHER_SERVERS
scripts/build.sh
export TETHER_MODULE=$PWD/target/release/libtether.so
# The program that strikes need not be fast: the tests' build of it is there already.
cargo bench --profile dev --bench servers -- hostile --check "$@"
