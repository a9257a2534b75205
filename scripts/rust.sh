#!/usr/bin/env bash
# The Rust client of clients/rust:
#
#   scripts/rust.sh [CARGO-TEST..]  its tests, among them the vectors of clients/protocol (TETHER_SERVER, TETHER_MODULE; TETHER_STEPS
#                                   cancelled acquires)
#   scripts/rust.sh --vectors       the vectors alone, which need no server
#   scripts/rust.sh --lint          cargo fmt, clippy
#   scripts/rust.sh --conform [..]  clients/protocol/conform with its adapter
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case ${1:-} in
    --vectors)
        # They are one test, which says how many it has run.
        cargo test -p tether-client --lib the_core_does_what_the_vectors_say -- --nocapture |
            sed -e '/^test result: /d' -e 's/.*vectors: \([0-9]\)/test result: \1/'
        exit
        ;;
    --lint)
        cargo fmt -p tether-client --check
        exec cargo clippy --quiet -p tether-client --all-targets -- -D warnings
        ;;
    --conform)
        shift
        # shellcheck source=scripts/tested.sh
        . scripts/tested.sh
        cargo build --quiet -p tether-client --example conform
        exec python3 -B clients/protocol/conform/conform.py --server "$TETHER_SERVER" --module "$TETHER_MODULE" "$@" \
            -- "$(scripts/need.sh --target)/debug/examples/conform"
        ;;
esac
# shellcheck source=scripts/tested.sh
. scripts/tested.sh
# Its feature `testing` starts this program.
cargo build --quiet -p tether-cli
exec cargo test -p tether-client "$@"
