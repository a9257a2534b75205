#!/usr/bin/env bash
# The C client of clients/c, on the hiredis of servers.sh:
#
#   scripts/c.sh                    vectors, tests and examples with sanitizers, tests and examples with valgrind
#                                   (TETHER_SERVER, TETHER_MODULE; CC=clang; TETHER_STEPS=100000 cancelled requests)
#   scripts/c.sh --lint             clang-format; gcc and clang without a warning; compiled as C++ and on libvalkey
#   scripts/c.sh --conform [ARGS]   conform with its adapter (ARGS of conform.py: --only NAME)
#
# Everything is built in target/c/. The last line of a run is in cargo's form, which .ci/run sums.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

ROOT=$PWD/target/c
SOURCES=$PWD/clients/c
HIREDIS=$PWD/.servers/hiredis
CC=${CC:-gcc}
FLAGS=(-std=c11 -g -Wall -Wextra -Wpedantic -Werror -isystem "$HIREDIS/include")
LIBRARIES=(-L"$HIREDIS/lib" -lhiredis -Wl,-rpath,"$HIREDIS/lib" -lm)
SANITIZED=(-O1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)

say() { printf 'c: %s\n' "$*" >&2; }

# build NAME SOURCE FLAGS.. LIBRARIES..: a program with the client in it.
build() {
    local name=$1 source=$2
    shift 2
    "$CC" "${FLAGS[@]}" -I "$SOURCES" -o "$ROOT/$name" "$source" "$@" "${LIBRARIES[@]}"
}

scripts/need.sh cc jansson
scripts/servers.sh hiredis
mkdir -p "$ROOT"

build vectors "$SOURCES/tests/vectors.c" "${SANITIZED[@]}" -ljansson
vectors=()
for file in clients/protocol/vectors/*.json; do
    case $file in */schema.json | */preludes.json) ;; *) vectors+=("$file") ;; esac
done
"$ROOT/vectors" clients/protocol/vectors/preludes.json "${vectors[@]}"
