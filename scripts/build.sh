#!/usr/bin/env bash
# Builds the module in release mode and puts it where redis.conf looks for it: target/release/libtether.so, also
# when cargo's own target folder is elsewhere, and on macOS, where cargo names it libtether.dylib.
#
#   PROFILE=1 scripts/build.sh   the code laid out by what scripts/profile.sh has recorded, as in a release
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/need.sh cargo cc libclang

layout=()
if [ -n "${PROFILE:-}" ]; then
    profile=$(scripts/profile.sh --path)
    [ -e "$profile" ] || { echo "build: there is no $profile: make profile records it" >&2; exit 1; }
    layout=("-Cprofile-use=$profile")
fi

# Cargo itself says where it has put the library: no guess about CARGO_TARGET_DIR, a target triple or a config file.
built=$(cargo rustc --package tether --release --lib --message-format=json-render-diagnostics -- ${layout[@]+"${layout[@]}"} |
    grep -oE '"[^"]*/libtether\.(so|dylib)"' | tail -n 1 | tr -d '"')
module=$PWD/target/release/libtether.so
mkdir -p "${module%/*}"
if [ ! "$built" -ef "$module" ]; then
    # Copied beside it and then renamed: a server that runs with the old one keeps the old file, and two builds have one each.
    cp "$built" "$module.$$"
    mv -f "$module.$$" "$module"
fi
echo "build: $module, in $SECONDS s" >&2
