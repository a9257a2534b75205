#!/usr/bin/env bash
# Starts a server with the module in the foreground, as redis.conf says. SERVER names another than the one on PATH, PORT
# another port than 6379.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/need.sh redis-cli || true # the server runs without
[ -n "${SERVER:-}" ] || scripts/need.sh server
server=${SERVER:-$(scripts/need.sh --server-path)}
port=${PORT:-6379}
cli="redis-cli -3"
[ "$port" = 6379 ] || cli="$cli -p $port"
cat <<END

  $("$server" --version)
  with the module tether on port $port; Ctrl-C stops it. Try, in two other terminals:

    $(printf '%-33s %s' "$cli" "$cli")
    > SETTP lock me                   > WATCHEX lock
    (integer) 1                       "EXIST"
    > QUIT                            > PING                           (redis-cli shows a push with its next reply:
                                      1) "watchex"                      the key is deleted with its owner's connection)
                                      2) "lock"
                                      3) "DEL"
                                      PONG
    Start the left one again:
    > LOCK.ACQUIRE job                > LOCK.ACQUIRE job WAIT 60000    (waits in the queue, for at most 60,000 ms)
    (integer) 251023456790529
    > LOCK.RELEASE job                (integer) 251023456790530        (has the lock)

END
# unknown: whether the module says to this server that it does not know it. Nobody reaches that server: it listens on a Unix socket.
unknown() {
    local folder pid said=
    folder=$(mktemp -d "${TMPDIR:-/tmp}/tether-run.XXXXXX")
    "$server" redis.conf --port 0 --unixsocket "$folder/socket" --save "" --logfile "$folder/log" &
    pid=$!
    for _ in {1..200}; do
        if grep -qis 'ready to accept connections' "$folder/log" || ! kill -0 "$pid" 2>/dev/null; then break; fi
        sleep 0.05
    done
    kill "$pid" 2>/dev/null || true
    wait "$pid" || true
    said=$(grep -s 'since pushes are off' "$folder/log") || true
    rm -rf "$folder"
    [ -n "$said" ]
}
# A server that tether does not know is tried first, by the command line, which takes longer to build than the module and needs
# Linux. If it does not qualify, it runs without pushes.
qualified=
if unknown && cargo build --quiet --release --package tether-cli; then
    qualified=$("$(scripts/need.sh --target)/release/tether" qualify --if-needed --server "$server" --module target/release/libtether.so |
        sed -n 's/^tether\.qualified //p') || true
fi
# Nothing is saved, so that no file is left here.
exec "$server" redis.conf --port "$port" --save "" ${qualified:+--tether.qualified "$qualified"}
