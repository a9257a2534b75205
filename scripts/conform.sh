#!/usr/bin/env bash
# A client against the clients' protocol (clients/protocol):
#
#   scripts/conform.sh CLIENT [ARG..]     the cases of conform, on real servers and a faulty wire: on the server on PATH (or SERVER=...),
#                                         or on SERVERS="redis-7.0 valkey-9.1 devserver", whose verdicts must be the same; the ARGs are
#                                         conform.py's (--only fence)
#   scripts/conform.sh --vectors CLIENT   the vectors, which need no server
#
# CLIENT is model (the protocol's own, which also breaks ten of its rules, to see that the cases notice); a language: rust python go
# node java c; or mutants (the Rust client with one rule of its core broken at a time, to see that too; the ARGs are rules). The module is
# target/release/libtether.so, or TETHER_MODULE. The last line is the sum: "N passed, N failed".
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

PROTOCOL=clients/protocol
# Rules of different parts. A case that names one must fail with a client that breaks it.
BROKEN=P-FENCE-2,P-FENCE-4,P-FENCE-8,P-LEASE-2,P-LOSS-4,P-LOSS-7,P-OWNER-1,P-REL-5,P-SESS-6,P-WATCH-3

say() { printf 'conform: %s\n' "$*" >&2; }

# script CLIENT: the one of that language.
script() {
    [ -x "scripts/$1.sh" ] || { say "there is no client of this name: $1"; exit 2; }
    echo "scripts/$1.sh"
}

vectors() {
    case $1 in
        model) scripts/need.sh python && python3 $PROTOCOL/check.py --run ;;
        *) "$(script "$1")" --vectors ;;
    esac
}

# on_server SERVER CLIENT ARG..
on_server() {
    local client=$2 command status=0
    export TETHER_SERVER=$1
    printf '\n==== conform: %s on %s ====\n\n' "$client" "$("$TETHER_SERVER" --version)"
    shift 2
    if [ "$client" = mutants ]; then
        python3 -B $PROTOCOL/conform/mutants.py --server "$TETHER_SERVER" --module "$TETHER_MODULE" "$@"
        return
    fi
    if [ "$client" != model ]; then
        "$(script "$client")" --conform "$@"
        return
    fi
    command=(python3 $PROTOCOL/conform/conform.py --server "$TETHER_SERVER" --module "$TETHER_MODULE" "$@")
    "${command[@]}" || status=1
    [ $# -gt 0 ] || "${command[@]}" --broken $BROKEN || status=1
    return $status
}

# same FILE..: of each server what conform.py said. Two that ran a case have one verdict.
same() {
    awk '
        /^(passed|failed): / {
            server = FILENAME
            sub(/.*\//, "", server)
            by_server[$2] = by_server[$2] "  " $1 " " server
            if ($2 in verdict) {
                is_common[$2]
                if (verdict[$2] != $1) differs[$2]
            }
            verdict[$2] = $1
        }
        END {
            for (name in is_common) count++
            for (name in differs) {
                printf "not the same verdicts: %s%s\n", name, by_server[name]
                status = 1
            }
            if (!status) printf "\nsame verdicts on all servers: %d cases\n", count
            exit status
        }' "$@"
}

conform() {
    local at server servers=() status=0
    # shellcheck disable=SC2206 # words
    local names=(${SERVERS:-server})
    scripts/need.sh python openssl
    TETHER_MODULE=$(realpath "${TETHER_MODULE:-target/release/libtether.so}")
    export TETHER_MODULE
    if [ -n "${SERVERS:-}" ]; then
        for server in $SERVERS; do
            if [ "$server" = devserver ]; then
                cargo build --quiet --package tether-cli
                servers+=("$(scripts/need.sh --target)/debug/tether")
            else
                scripts/servers.sh "$server"
                servers+=("$PWD/.servers/$server/redis-server")
            fi
        done
    else
        [ -n "${SERVER:-}" ] || scripts/need.sh server
        servers=("$(realpath --no-symlinks "${SERVER:-$(scripts/need.sh --server-path)}")")
    fi
    mkdir "$kept/by-server"
    for at in "${!servers[@]}"; do
        on_server "${servers[$at]}" "$@" 2>&1 | tee "$kept/by-server/${names[$at]}" || status=1
    done
    [ ${#servers[@]} = 1 ] || same "$kept"/by-server/* || status=1
    return $status
}

kept=$(mktemp -d)
said=$kept/said
trap 'rm -rf "$kept"' EXIT
# What fails ends the subshell, and the sum is printed all the same. Left of `||`, `set -e` would have no effect in it.
set +e
case ${1:-} in
    "" | -*) [ "${1:-}" = --vectors ] && [ $# = 2 ] || { say "which client?"; exit 2; }
        (set -e; vectors "$2") 2>&1 | tee "$said" ;;
    *) (set -e; conform "$@") 2>&1 | tee "$said" ;;
esac
status=$?
echo
awk -f scripts/sum.awk "$said"
exit $status
