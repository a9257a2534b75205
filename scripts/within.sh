#!/usr/bin/env bash
# For tests that may hang:
#
#   scripts/within.sh SECONDS COMMAND..   runs it; if it takes longer, interrupts it, so that it says where it is, and kills it a minute
#                                         later. It just runs it without GNU's coreutils (macOS), and with TETHER_STEPS
#                                         or TETHER_FAULTS, which ask tests to take long
#
# The command does not ignore the signals that nohup, or a shell for its background, has it ignore: tests send them.
set -euo pipefail

limit=$1
shift
[ -z "${TETHER_STEPS:-}${TETHER_FAULTS:-}" ] || exec "$@"
# In the foreground, Ctrl-C still reaches the command.
bounded=(env --default-signal=INT,QUIT,HUP timeout --foreground -s INT -k 60 "$limit")
"${bounded[@]}" true 2>/dev/null || exec "$@"
status=0
"${bounded[@]}" "$@" || status=$?
[ $SECONDS -lt "$limit" ] || echo "within: stopped, since it took longer than $limit s: $*" >&2
exit $status
