#!/usr/bin/env bash
# What takes too long for each change, in slices of at most eight minutes each on two cores:
#
#   scripts/nightly.sh                all slices; some hours
#   scripts/nightly.sh NAME...        these
#   scripts/nightly.sh --list         names, the paths that call for each, and what each runs
#   scripts/nightly.sh --due SECONDS  for CI: one slice by the number of commits, then those whose paths have changed since the
#                                     last release (or in the last 30 commits, whichever is shorter), as many as are expected to
#                                     end in so many seconds one after another. Leaves out slices that want the machine for
#                                     themselves, and says what it left out.
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
# it compares times, or its servers have more threads than the machine has cores.
slice() {
    timed+=("$([[ $1 != *! ]] || echo timed)")
    names+=("${1%!}")
    seconds+=("$2")
    paths+=("$3")
    shift 3
    commands+=("$*")
}

# shellcheck source=scripts/slices.sh
. "${SLICES:-scripts/slices.sh}"

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
        able=() expected=0
        for at in "${!names[@]}"; do [ -n "${timed[at]}" ] || able+=("$at"); done
        in_turn=${able[count % ${#able[@]}]}
        for turn in "${!names[@]}"; do
            at=$(((in_turn + turn) % ${#names[@]}))
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
# Each slice is a process group of its own, to which no signal for this script comes. A command that fails in this trap would
# give its status to the script, hence `|| true`.
clean_up() {
    local pid
    for pid in "$results"/*.pid; do [ ! -e "$pid" ] || kill "$(cat "$pid")" || true; done
    rm -rf "$results"
}
trap clean_up EXIT
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
