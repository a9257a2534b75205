# shellcheck shell=bash
# What a client's tests run on, where nobody names it: TETHER_SERVER, which is installed if there is none, TETHER_MODULE, which is
# compiled, and TETHER_PROGRAM, the command line, which is compiled if it is not there. To be sourced in the project's folder.

TETHER_SERVER=${TETHER_SERVER:-$(scripts/need.sh server >&2 && scripts/need.sh --server-path)}
TETHER_PROGRAM=${TETHER_PROGRAM:-$(scripts/need.sh --target)/debug/tether}
if [ -z "${TETHER_MODULE:-}" ]; then
    scripts/need.sh cargo cc libclang
    TETHER_MODULE=$(cargo build --package tether --message-format=json-render-diagnostics | grep -oE '"[^"]*/libtether\.(so|dylib)"' | tail -n 1 | tr -d '"')
fi
if [ ! -x "$TETHER_PROGRAM" ]; then
    scripts/need.sh cargo cc
    cargo build --quiet --package tether-cli
fi
export TETHER_SERVER TETHER_MODULE TETHER_PROGRAM
