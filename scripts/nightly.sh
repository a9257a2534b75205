#!/usr/bin/env bash
# What takes too long for each change, in slices of at most eight minutes each on two cores:
#
#   scripts/nightly.sh                all slices; some hours
#   scripts/nightly.sh NAME...        these
#   scripts/nightly.sh --list         names, the paths that call for each, and what each runs
#   scripts/nightly.sh --due SECONDS  for CI: one slice by the number of commits, then those whose paths have changed since the
#                                     last release (or in the last 30 commits, whichever is shorter), as many as are expected to
#                                     end in so many seconds. Says what it left out. Slices that want the machine for
#                                     themselves are left out.
#
# Two slices run side by side (SIDE_BY_SIDE=3 takes three), since most of them wait for their servers; those that want the machine
# for themselves run after the others.
# It goes on after a failure, and ends with a table: slice, commit, passed or FAILED, seconds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null

SIDE_BY_SIDE=${SIDE_BY_SIDE:-2}

# ---- the slices -----------------------------------------------------------------------------------------------

names=() paths=() seconds=() commands=() timed=()

# slice NAME SECONDS PATHS COMMAND...: SECONDS is about what it takes on two idle cores. A name that ends in `!` wants them for itself:
# it compares times, or its servers' threads spin.
slice() {
    timed+=("$([[ $1 != *! ]] || echo timed)")
    names+=("${1%!}")
    seconds+=("$2")
    paths+=("$3")
    shift 3
    commands+=("$*")
}

SERVERS="redis-7.0 redis-7.2 redis-7.4 redis-8.0 redis-8.2 redis-8.6 valkey-8.0 valkey-8.1 valkey-9.1"
MODULE="src/* build.rs Cargo.* scripts/test.sh scripts/servers.sh"
SUITES="tests/server/* tests/locks/* tests/sessions/* tests/failover/* tests/cluster/* tests/history/* tests/support/*"
CLIENTS="clients/rust/* clients/cli/*"

# long STEPS TEST NAME: one of the long tests, with so many steps.
long() { echo "TETHER_STEPS=$1 scripts/test.sh --soak --test $2 $3"; }
# long_client STEPS NAME: the same of the Rust client's.
long_client() { echo "TETHER_STEPS=$1 scripts/test.sh --soak-clients $2"; }

for server in $SERVERS; do
    slice "suites-$server" 280 "$MODULE $SUITES" make test-servers SERVERS="$server"
done
for server in redis-8.6 valkey-9.1!; do
    slice "threads-$server" 280 "$MODULE $SUITES" env TETHER_CONFIG="'io-threads 4'" make test-servers SERVERS="${server%!}"
done
for server in $SERVERS; do
    slice "storm-$server" 240 "$MODULE tests/fuzz/*" scripts/fuzz.sh --storm "$server" 400000
done
for server in redis-7.0 valkey-9.1; do
    for suite in locks server sessions; do
        slice "sanitize-$suite-$server" 420 "src/shell/* build.rs scripts/sanitize.sh" make sanitize SANITIZE="$suite" SERVERS="$server"
    done
    slice "hostile-$server!" 400 "src/* benches/servers/hostile/*" make hostile SERVERS="$server"
done
slice fuzz 300 "src/command/* src/shell/persistence/* fuzz/*" make fuzz FUZZ=--short
slice instructions 200 "src/* benches/instructions.txt benches/servers/*" make instructions
for part in 1 2 3 4; do
    slice "upstream-redis-7.0-$part" 400 "src/shell/* scripts/upstream.sh" env PART=$part/4 make upstream UPSTREAM="'--short redis-7.0'"
    slice "upstream-valkey-9.1-$part" 400 "src/shell/* scripts/upstream.sh" env PART=$part/4 make upstream UPSTREAM="'--short valkey-9.1'"
done
slice upgrade 300 "src/engine/record.rs src/engine/pairs.rs src/engine/terms.rs src/command/pack.rs src/shell/persistence/* tests/failover/upgrade.rs scripts/upgrade.sh" make upgrade
slice packaging 300 "packaging/* scripts/dist.sh scripts/monitoring.sh clients/cli/* src/shell/commands/info.rs" make dist monitoring
slice stock-clients 300 "tests/clients/* docs/clients.md src/command/*" make clients
slice conform 260 "$MODULE clients/protocol/* scripts/conform.sh" make conform
for client in rust python go node java c; do
    slice "conform-$client!" 240 "clients/$client/* clients/protocol/* scripts/conform.sh" make conform CLIENT="$client"
done
slice campaign 400 "$CLIENTS" make campaign TETHER_STEPS=90
slice exhaustive 400 "src/engine/* tests/simulation/* tests/support/src/model/*" scripts/test.sh --soak --profile bench --test simulation exhaustive
slice random-worlds 400 "src/engine/* tests/simulation/* tests/support/src/model/*" "$(long 3000000 simulation random_worlds)"
slice random-histories 400 "src/* tests/history/* tests/support/src/model/*" "$(long 60000 history random_histories)"
slice crashes 400 "$MODULE tests/failover/*" "$(long 60 failover crashes)"
slice resyncs 400 "$MODULE tests/failover/*" "$(long 30 failover resyncs)"
slice acknowledged 400 "$MODULE tests/failover/* src/engine/rules/acks.rs" "$(long 40 failover acknowledged)"
slice sentinels 400 "$MODULE tests/failover/*" "$(long 15 failover sentinels)"
slice sessions-crash 400 "$MODULE tests/failover/*" "$(long 25 failover sessions)"
slice cluster-campaign 400 "$MODULE tests/cluster/*" "$(long 4 cluster campaign)"
slice cluster-failovers 400 "$MODULE tests/cluster/*" "$(long 20 cluster matrix)"
slice cluster-acknowledged 400 "$MODULE tests/cluster/*" "$(long 30 cluster acknowledged)"
slice races 200 "$MODULE tests/locks/*" scripts/test.sh --soak --test locks --test server
slice quorum-models 400 "clients/rust/src/quorum/*" "$(long_client 2000000 quorum::)"
slice quorum-faults 400 "$CLIENTS" "$(long_client 100 quorum_faults)"

# ---- which ones -----------------------------------------------------------------------------------------------

# changed PATTERN...: whether a file that has changed is among these.
changed() {
    local file pattern
    for pattern in "$@"; do
        while read -r file; do
            # shellcheck disable=SC2053 # a pattern
            [[ $file != $pattern ]] || return 0
        done <<< "$CHANGED"
    done
    return 1
}

chosen=() left_out=()
limit=
case ${1:-} in
    --list)
        for at in "${!names[@]}"; do
            printf '%-26s about %s s%s\n    called for by %s\n    %s\n' "${names[at]}" "${seconds[at]}" "${timed[at]:+, on an idle machine}" "${paths[at]}" "${commands[at]}"
        done
        exit ;;
    --due)
        limit=$2
        count=$(git rev-list --count HEAD)
        base=$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null || true)
        { [ -n "$base" ] && [ "$(git rev-list --count "$base..HEAD")" -le 30 ]; } || base=$(git rev-list --first-parent HEAD | sed -n '31p')
        CHANGED=$(git diff --name-only "${base:-$(git hash-object -t tree /dev/null)}" HEAD)
        expected=0
        for turn in "${!names[@]}"; do
            at=$(((count + turn) % ${#names[@]}))
            if [ "$turn" = 0 ] || { set -f; changed ${paths[at]}; }; then
                set +f
                if [ -z "${timed[at]}" ] && [ $((expected + seconds[at])) -le "$limit" ]; then
                    chosen+=("$at")
                    expected=$((expected + seconds[at]))
                else
                    left_out+=("${names[at]}")
                fi
            fi
            set +f
        done ;;
    "") chosen=("${!names[@]}") ;;
    *)
        for name in "$@"; do
            found=
            for at in "${!names[@]}"; do [ "${names[at]}" != "$name" ] || { chosen+=("$at"); found=1; }; done
            [ -n "$found" ] || { echo "nightly: no such slice: $name (scripts/nightly.sh --list)" >&2; exit 2; }
        done ;;
esac

# ---- some side by side ----------------------------------------------------------------------------------------

# What each says is shown when it has ended.
commit=$(git rev-parse --short HEAD)
results=$(mktemp -d)
# Each slice is a process group of its own, to which no signal for this script comes.
trap 'cat "$results"/*.pid 2>/dev/null | xargs -r kill; rm -rf "$results"' EXIT
# Ctrl-C counts in tests, though bash has what runs in its background ignore it.
heeding=(env --default-signal=INT,QUIT)
"${heeding[@]}" true 2>/dev/null || heeding=()
run_slice() {
    local at=$1 began=$SECONDS result=passed
    # Three times as long as it should take at the most: what hangs is stopped.
    ${heeding[@]+"${heeding[@]}"} timeout -k 30 1440 bash -c "${commands[at]}" > "$results/$at.said" 2>&1 &
    echo $! > "$results/$at.pid"
    wait $! || result=FAILED
    rm "$results/$at.pid"
    printf '%-26s %-10s %-8s %s\n' "${names[at]}" "$commit" "$result" $((SECONDS - began)) > "$results/$at.row"
    printf '\n======== %s: %s ========\n\n%s\n' "${names[at]}" "${commands[at]}" "$(cat "$results/$at.said")"
    printf '======== %s ========\n' "$(cat "$results/$at.row")"
}
running=0
for at in "${chosen[@]}"; do
    [ -z "${timed[at]}" ] || continue
    if [ $running = "$SIDE_BY_SIDE" ]; then
        wait -n
        running=$((running - 1))
    fi
    run_slice "$at" &
    running=$((running + 1))
done
wait
for at in "${chosen[@]}"; do [ -z "${timed[at]}" ] || run_slice "$at"; done

printf '\n%-26s %-10s %-8s %s\n' slice commit result seconds
for at in "${chosen[@]}"; do cat "$results/$at.row"; done
[ ${#left_out[@]} -eq 0 ] || printf '\nnot run, for want of time or of an idle machine: %s\n' "${left_out[*]}"
mapfile -t failed < <(sed -n 's/ .* FAILED .*//p' "$results"/*.row 2>/dev/null)
[ ${#failed[@]} -eq 0 ] || { printf '\nFAILED: %s\n' "${failed[*]}"; exit 1; }
