#!/usr/bin/env bash
# Two versions beside each other (tests/failover/upgrade.rs): today's module and the last release's, built in target/upgrade/.
#
#   scripts/upgrade.sh          on Redis 7.0 and Valkey 9.1, or SERVERS
#
# FROM=COMMIT takes the module of that commit. Where there is no release yet it is the first one that wrote today's formats.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

FIRST=5a7e2a7e3287

scripts/need.sh cargo cc libclang
from=${FROM:-$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null || echo "$FIRST")}
commit=$(git rev-parse --verify --quiet "$from^{commit}") || { echo "upgrade: there is no $from here; is this a whole clone?" >&2; exit 1; }

folder=$PWD/target/upgrade
export TETHER_FORMER_MODULE=$folder/$commit.so
if [ ! -e "$TETHER_FORMER_MODULE" ]; then
    echo "upgrade: building the module of $from"
    rm -rf "$folder/source"
    mkdir -p "$folder/source"
    git archive "$commit" | tar -x -C "$folder/source"
    (cd "$folder/source" && CARGO_TARGET_DIR=$folder/build cargo build --package tether --lib)
    cp "$folder/build/debug/libtether.so" "$TETHER_FORMER_MODULE.$$"
    mv "$TETHER_FORMER_MODULE.$$" "$TETHER_FORMER_MODULE"
fi

names=${SERVERS:-redis-7.0 valkey-9.1}
# shellcheck disable=SC2086 # a list of words
scripts/servers.sh $names
for name in $names; do
    echo "upgrade: from $from"
    SERVER=.servers/$name/redis-server scripts/test.sh --soak --test failover upgrade::
done
