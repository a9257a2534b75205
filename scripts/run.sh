#!/usr/bin/env bash
# Starts a server with the module in the foreground, as redis.conf says. SERVER names another than the one on PATH.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/need.sh redis-cli || true # the server runs without
[ -n "${SERVER:-}" ] || scripts/need.sh server
server=${SERVER:-$(scripts/need.sh --server-path)}
cat <<END

  $("$server" --version)
  with the module tether on port 6379; Ctrl-C stops it. Try, in two other terminals:

    redis-cli                         redis-cli -3
    > SETTP lock me                   > WATCHEX lock
    (integer) 1                       "EXIST"
    > QUIT                            > PING                           (an idle redis-cli shows with its next command
                                      1) "watchex"                      what it was told: the key went with its owner)
                                      2) "lock"
                                      3) "DEL"
                                      PONG
    redis-cli
    > LOCK.ACQUIRE job                > LOCK.ACQUIRE job WAIT 60000    (waits its turn)
    (integer) 7529889934606339
    > LOCK.RELEASE job                (integer) 7529889934606340       (and has it)

END
exec "$server" redis.conf
