#!/usr/bin/env bash
# Counts the instructions of six operations under callgrind, on one server of each family.
#
#   scripts/instructions.sh --check   fails if one needs over 5 % more than benches/instructions.txt says
#   scripts/instructions.sh --keep    writes today's counts there
#
# Counts depend on the compiler and on the server's version. Where none are kept for these, it says so and passes. They are
# those of a plain build, whatever PROFILE says: another record would change them without a change of the code.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [ "$(uname -s)" != Linux ]; then
    echo "instructions: SKIPPED, since valgrind runs the servers of the matrix on Linux only" >&2
    exit
fi
export TETHER_SERVERS="redis-7.0 valkey-9.1"
scripts/need.sh valgrind
# shellcheck disable=SC2086 # a list of words
scripts/servers.sh $TETHER_SERVERS
PROFILE='' scripts/build.sh
export TETHER_MODULE=$PWD/target/release/libtether.so
# The program that counts need not be fast: the tests' build of it is there already.
cargo bench --profile dev --bench servers -- instructions "$@"
