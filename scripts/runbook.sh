#!/usr/bin/env bash
# Runs each step of docs/operations.md and docs/tasks.md as it is written there, on a real server that has the symptom:
#
#   scripts/runbook.sh [NAME..]     all of it, or the tests whose names contain these words (SERVER or TETHER_SERVER,
#                                   TETHER_MODULE). Without NAMEs also: the pictures of docs/ are those that a run gives
#   scripts/runbook.sh --draw       draws these pictures
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/need.sh python redis-cli cc
TETHER_SERVER=${SERVER:-${TETHER_SERVER:-}}
# shellcheck source=scripts/tested.sh
. scripts/tested.sh
server=$TETHER_SERVER
client=$(dirname "$server")/redis-cli
[ -x "$client" ] || client=$(command -v redis-cli || command -v valkey-cli)
[ "${1:-}" != --draw ] || exec python3 -B tests/runbook/draw.py "$server" "$TETHER_MODULE"
tether=$(cargo build --package tether-cli --message-format=json-render-diagnostics | sed -n 's/.*"executable":"\([^"]*\/tether\)".*/\1/p' | tail -n 1)
python3 -B tests/runbook/run.py "$server" "$client" "$TETHER_MODULE" "$tether" "$@"
[ $# -gt 0 ] || scripts/within.sh 600 python3 -B tests/runbook/draw.py "$server" "$TETHER_MODULE" --check
