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

    redis-cli                       redis-cli -3
    > SETTP lock me                 > WATCHEX lock
    (integer) 1                     "EXIST"
    > QUIT                          -> watchex lock DEL   (an idle redis-cli shows it with its next command, say PING)

END
exec "$server" redis.conf
