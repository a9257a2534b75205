#!/usr/bin/env bash
# Records how often the module's code takes each of its ways, for the compiler to lay it out by: what is taken mostly stands
# together, and the rest apart. Mostly a server has done so much else since it last ran the module that its code must come from
# a slower cache: so it counts how many lines of the cache it takes.
#
#   scripts/profile.sh           records, by what the benchmarks do; some minutes
#   scripts/profile.sh --path    where the record is put
#
# `make build PROFILE=1` takes it; a plain `make build` does not. A record is of one compiler, since functions' names hold its
# version, and of the code as it was: a function that has changed since is compiled as if there were none. So it is made where a
# release is made, and kept nowhere.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

profile=$PWD/target/profiles/$(rustc -vV | awk '/^release:/ { release = $2 } /^host:/ { host = $2 } END { print release "-" host }').profdata
if [ "${1:-}" = --path ]; then
    echo "$profile"
    exit
fi

export TETHER_SERVERS="redis-7.0 redis-8.0 valkey-9.1"
scripts/need.sh cargo cc libclang llvm-profdata
# shellcheck disable=SC2086 # a list of words
scripts/servers.sh $TETHER_SERVERS || echo "profile: going on with the servers that could be fetched" >&2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

export TETHER_MODULE=$scratch/libtether.so LLVM_PROFILE_FILE=$scratch/%p.profraw
built=$(cargo rustc --package tether --release --lib --message-format=json-render-diagnostics -- -Cprofile-generate |
    grep -oE '"[^"]*/libtether\.so"' | tail -n 1 | tr -d '"')
cp "$built" "$TETHER_MODULE"
cargo bench --profile dev --bench servers -- --short foreign pairs fanout death replicated handoff

mkdir -p "${profile%/*}"
"$(scripts/need.sh --llvm-profdata)" merge --sparse --output="$profile" "$scratch"/*.profraw
echo "profile: $profile"
