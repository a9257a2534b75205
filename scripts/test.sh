#!/usr/bin/env bash
# Cargo's tests against the module that is compiled with them, which looks after itself: it stops where a number runs over, and
# where the server is called while something of the shell's is lent.
#
#   scripts/test.sh                     the module and its documents, on the server on PATH (or SERVER=...)
#   scripts/test.sh --clients           the clients: Rust, the command line, Python, C, Go, Node.js, Java; on the same server
#   scripts/test.sh --rust              of them only Rust and the command line
#   scripts/test.sh --soak [ARG..]      the long ones of the module, on the same server; ARGs are cargo test's
#   scripts/test.sh --soak-clients [ARG..]   the long ones of the clients
#   scripts/test.sh --servers [NAME..]  the integration tests on these servers; unless given, on those on which each change is tested
#   scripts/test.sh --matrix            the integration tests on each server of the matrix
#
# Tests with servers mostly wait for them, so several of cargo's test programs run side by side, and what each says is shown when it
# has ended. What must meet deadlines of the system's clock (the campaign of faults) runs alone, after the others.
#
# The tests find in the environment the server's program, TETHER_SERVER, and the module, TETHER_MODULE. The first kind is quick
# (TETHER_QUICK; tests/support/src/harness/quick.rs).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Always these together: cargo compiles a crate anew where other packages ask it for other features.
module=(--package tether --package tether-testing)
clients=(--package tether-client --package tether-cli --package tether-devserver)

heading() { printf '\n==== %s ====\n\n' "$*"; }

# shown TITLE COMMAND..: runs it, and shows what it said when it has ended.
shown() {
    local title=$1 said status=0
    shift
    said=$(mktemp)
    # Whoever is stopped from outside still shows what was said, and so what hung.
    trap : TERM
    "$@" > "$said" 2>&1 || status=$?
    printf '\n%s\n' "$title"
    cat "$said"
    rm -f "$said"
    return $status
}

# program FOLDER FILE: runs a test program in its package's folder, as cargo does, and shows what it said.
program() {
    local within=$PWD/scripts/within.sh
    export RUST_TEST_THREADS=4
    # Its tests mostly wait for servers to agree.
    [[ $2 != */cluster-* ]] || RUST_TEST_THREADS=8
    cd "$1"
    shown "     Running ${2##*/}" "$within" 1200 "$2"
}
if [ "${1:-}" = --program ]; then
    program "${2%%$'\t'*}" "${2#*$'\t'}"
    exit
fi

if [ "${1:-}" = --language ]; then
    shown "==== tests of clients/$2 ====" "scripts/$2.sh"
    exit
fi

# compile ARG..: compiles this selection, which cargo describes in `said`, and has the tests load a copy of its module: cargo links the
# module anew for each selection of packages, and another run may do that while these tests go on.
compile() {
    said=$(cargo test --no-run --message-format=json-render-diagnostics "$@") || return
    [ -z "$module_given" ] || return 0
    local built kept=${mode#--}
    kept=$(scripts/need.sh --target)/tested/${kept:-module}
    built=$(grep -oE '"[^"]*/libtether\.(so|dylib)"' <<< "$said" | tail -n 1 | tr -d '"')
    { mkdir -p "$kept" && cp "$built" "$kept/new.$$" && mv "$kept/new.$$" "$kept/libtether.so"; } || return
    export TETHER_MODULE=$kept/libtether.so
}

# run_tests ARG..: cargo's tests of this selection; with `documented=1` those in comments, too, beside the others.
run_tests() {
    local said programs name examples='' status=0
    compile "$@" || return # left of `||`, `set -e` has no effect
    if [ -n "${documented:-}" ]; then
        shown "     Running examples in comments" scripts/within.sh 1200 cargo test --no-fail-fast --doc "$@" &
        examples=$!
    fi
    programs=$(sed -n 's/.*"manifest_path":"\([^"]*\)\/Cargo.toml".*"overflow_checks":[a-z]*,"test":true}.*"executable":"\([^"]*\)".*/\1\t\2/p' <<< "$said")
    [ -n "$programs" ] || { echo "test: no test was compiled" >&2; return 1; }
    # The one that takes longest comes to stand first.
    for name in run client simulation failover locks history cluster server; do
        programs=$(grep "/$name-[0-9a-f]*$" <<< "$programs" || true; grep -v "/$name-[0-9a-f]*$" <<< "$programs" || true)
    done
    local alone='/campaign-[0-9a-f]*$'
    grep -v "$alone" <<< "$programs" | tr '\n' '\0' | xargs -0 -P "$side_by_side" -n 1 scripts/test.sh --program || status=1
    { grep "$alone" <<< "$programs" || true; } | tr '\n' '\0' | xargs -0 -r -n 1 scripts/test.sh --program || status=1
    [ -z "$examples" ] || wait "$examples" || status=1
    return $status
}

# soak ARG..: those of this selection that take long.
soak() {
    local said
    compile "$@"
    exec cargo test --no-fail-fast "$@" -- --ignored
}

mode=${1:-}
[ $# -eq 0 ] || shift

# The module's have the machine for themselves; the others may share it, with another slice of `make nightly`.
side_by_side=3
[ -n "$mode" ] || side_by_side=4
# Servers with I/O threads have more threads than the machine has processors, and these wait for each other.
[ -z "${TETHER_CONFIG:-}" ] || side_by_side=1

unset TETHER_QUICK
[ -n "$mode" ] || export TETHER_QUICK=1

# For the tests of examples/ and of the dead peer. Without them the other tests still tell something.
tools=(redis-cli)
things=()
[[ $mode = --clients || $mode = --rust ]] || { tools+=(node) things=(python hiredis node); }
[ "$(uname -s)" != Linux ] || tools+=(ip)
scripts/need.sh "${tools[@]}" || echo "test: going on without; the tests that need it will fail" >&2
[ ${#things[@]} -eq 0 ] || scripts/servers.sh "${things[@]}" || echo "test: going on without; the tests of the examples that need it will fail" >&2
export PATH=$PATH:/usr/sbin:/sbin # an ordinary user's PATH on Debian lacks `ip`

scripts/need.sh cargo cc libclang
module_given=${TETHER_MODULE:-}

if [ "$mode" != --servers ] && [ "$mode" != --matrix ]; then
    [ -n "${SERVER:-}" ] || scripts/need.sh server
    server=${SERVER:-$(scripts/need.sh --server-path)}
    TETHER_SERVER=$(cd "$(dirname "$server")" && pwd)/${server##*/}
    export TETHER_SERVER
    heading "tests on $("$TETHER_SERVER" --version)"
    case $mode in
        --soak) soak "${module[@]}" "$@" ;;
        --soak-clients) soak "${clients[@]}" "$@" ;;
        "") packages=("${module[@]}") ;;
        --clients | --rust) packages=("${clients[@]}") ;;
        *) echo "test: no such mode: $mode" >&2; exit 2 ;;
    esac
    status=0
    documented=1 run_tests "${packages[@]}" || status=1
    if [ "$mode" = --clients ]; then
        # Two at a time, since they mostly wait; those that take longest come first.
        printf '%s\n' python java c go node | xargs -P 2 -L 1 scripts/test.sh --language || status=1
    fi
    exit $status
fi

names=("$@")
list=--list
if [ "$mode" = --matrix ]; then
    scripts/servers.sh --matrix
    list=--list-all
else
    scripts/servers.sh "$@"
fi
[ ${#names[@]} -gt 0 ] || IFS=$'\n' read -r -d '' -a names < <(scripts/servers.sh $list) || true
[ ${#names[@]} -gt 0 ] || { echo "test-servers: no server to test with" >&2; exit 1; }

# Those that talk to a server. The others are the same on all of them, and `make test` runs them.
with_servers=(--test server --test locks --test sessions --test failover --test cluster --test history --test examples --test readme --test reference)
failed=()
for name in "${names[@]}"; do
    export TETHER_SERVER=$PWD/.servers/$name/redis-server
    heading "integration tests on $name: $("$TETHER_SERVER" --version)"
    run_tests "${module[@]}" "${with_servers[@]}" || failed+=("$name")
done

heading "servers tested: ${names[*]}"
if [ ${#failed[@]} -gt 0 ]; then
    echo "FAILED on: ${failed[*]}"
    exit 1
fi
echo "passed on all of them"
