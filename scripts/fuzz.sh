#!/usr/bin/env bash
# Fuzzers. First those that follow the code's branches (fuzz/), on what clients may say, what servers tell each other, and what
# RDB files say; then anything at all to real servers (tests/fuzz/), against a module that looks after itself.
#
#   scripts/fuzz.sh           ten minutes for each target, then ten million times something on each of four servers
#   scripts/fuzz.sh --short   what was kept, and some thousand variations of it that are always the same; then a small storm on
#                             Redis 7.0 and Valkey 9.1
#   scripts/fuzz.sh --storm NAME STEPS   only the storm, on that server of the matrix, of so many steps
#
# SERVERS names others of the matrix, TETHER_SEED and TETHER_STEPS choose other storms. What the targets find new stays
# in target/fuzz/found/; a run of the target with `-merge=1 fuzz/corpus/NAME target/fuzz/found/NAME` keeps it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Whatever is said to these servers, so many times.
storms() {
    # shellcheck disable=SC2086 # a list of words
    scripts/servers.sh $names
    export TETHER_STEPS=${TETHER_STEPS:-$steps}
    for name in $names; do
        SERVER=.servers/$name/redis-server scripts/test.sh --soak --test fuzz a_server_stands_whatever_is_said
    done
}

if [ "${1:-}" = --storm ]; then
    names=$2 steps=$3
    storms
    exit
fi

limits=(-max_total_time=600)
names=${SERVERS:-redis-7.0 redis-8.0 valkey-8.0 valkey-9.1}
steps=10000000
if [ "${1:-}" = --short ]; then
    limits=(-runs=20000 -seed=1)
    names=${SERVERS:-redis-7.0 valkey-9.1}
    # With an append-only file and one I/O thread: more of them wait for each other where there are few processors.
    steps=20000
    export TETHER_SEED=${TETHER_SEED:-2}
fi

scripts/need.sh cargo c++
# What cargo-fuzz does, without the sanitizers: there is no unsafe code in what they look at.
flags="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-trace-compares"
flags+=" -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table -Ccodegen-units=1"
triple=$(rustc -vV | sed -n 's/^host: //p')
CARGO_TARGET_DIR=target/fuzz RUSTFLAGS=$flags cargo build --release --manifest-path fuzz/Cargo.toml --target "$triple"
for target in commands stream files; do
    found=target/fuzz/found/$target
    [ "${1:-}" != --short ] || rm -rf "$found"
    mkdir -p "$found"
    echo "fuzz: $target"
    log=$found.log
    if ! "target/fuzz/$triple/release/$target" "${limits[@]}" -max_len=512 -timeout=10 -artifact_prefix="$found-" \
        "$found" "fuzz/corpus/$target" > "$log" 2>&1; then
        tail -n 60 "$log"
        echo "fuzz: $target has found something"
        exit 1
    fi
    grep Done "$log"
done

storms
