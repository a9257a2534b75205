#!/usr/bin/env bash
# Starts a cluster of three masters and three replicas with the module, in a temporary folder, in the foreground:
# Ctrl-C stops all of it and leaves nothing behind. SERVER names another server than the one on PATH, PORT the first of
# the six ports (the servers talk to each other on ports 10000 above them).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

[ -n "${SERVER:-}" ] || scripts/need.sh server
server=${SERVER:-$(scripts/need.sh --server-path)}
server=$(cd "$(dirname "$server")" && pwd)/${server##*/}
cli=$(dirname "$server")/redis-cli
if [ ! -x "$cli" ]; then
    scripts/need.sh redis-cli
    cli=redis-cli
fi
first=${PORT:-7001}
last=$((first + 5))
if ! [ "$first" -gt 0 ] 2>/dev/null || [ "$last" -gt 55535 ]; then
    echo "run-cluster: PORT=$first: a number up to 55530, please" >&2
    exit 1
fi

folder=$(mktemp -d "${TMPDIR:-/tmp}/tether-cluster.XXXXXX")
servers=()
end() {
    trap - EXIT INT TERM
    # First politely: of a process that it kills, the shell says "Killed".
    local try
    [ ${#servers[@]} -eq 0 ] || kill "${servers[@]}" 2>/dev/null || true
    for try in {1..50}; do
        kill -0 "${servers[@]}" 2>/dev/null || break
        sleep 0.1
    done
    [ ${#servers[@]} -eq 0 ] || kill -9 "${servers[@]}" 2>/dev/null || true
    wait 2>/dev/null || true
    rm -rf "$folder"
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

fail() {
    echo "run-cluster: $*" >&2
    tail -n 5 "$folder"/*/log >&2 || true
    exit 1
}

module=${TETHER_MODULE:-$PWD/target/release/libtether.so} # on macOS, too: see scripts/build.sh
nodes=()
for port in $(seq "$first" "$last"); do
    mkdir "$folder/$port"
    # The project's settings, with what is different for each.
    sed "s|^loadmodule .*|loadmodule \"$module\"|" redis.conf > "$folder/$port/redis.conf"
    cat >> "$folder/$port/redis.conf" <<END
port $port
bind 127.0.0.1
dir $folder/$port
logfile $folder/$port/log
save ""
cluster-enabled yes
cluster-node-timeout 2000
END
    # In the background they would not be heard by Ctrl-C, nor should they: `end` stops them.
    "$server" "$folder/$port/redis.conf" < /dev/null &
    servers+=($!)
    nodes+=("127.0.0.1:$port")
done
for port in $(seq "$first" "$last"); do
    for _ in $(seq 100); do
        [ "$("$cli" -p "$port" ping 2> /dev/null)" != PONG ] || continue 2
        kill -0 "${servers[$((port - first))]}" 2> /dev/null || fail "the server on port $port has ended"
        sleep 0.1
    done
    fail "the server on port $port does not answer"
done
# Another's server may have been there first.
for place in "${!servers[@]}"; do
    kill -0 "${servers[$place]}" 2> /dev/null || fail "port $((first + place)) is taken"
done
"$cli" --cluster create "${nodes[@]}" --cluster-replicas 1 --cluster-yes > "$folder/create" 2>&1 ||
    { cat "$folder/create" >&2; fail "no cluster"; }
for port in $(seq "$first" "$last"); do
    for _ in $(seq 100); do
        "$cli" -p "$port" cluster info 2> /dev/null | grep -q cluster_state:ok && continue 2
        sleep 0.1
    done
    fail "the server on port $port does not see a whole cluster"
done

cat <<END

  $("$server" --version)
  a cluster with the module tether on ports $first to $last; Ctrl-C stops it. Try, in two other terminals:

    redis-cli -c -3 -p $first           redis-cli -c -3 -p $first
    > SETTP lock me                   > SETTP lock you WAIT 0         (waits its turn; -c follows to the key's server)
    (integer) 1
    > QUIT                            (integer) 1

  and move slots meanwhile, or let a replica take over:

    redis-cli --cluster reshard 127.0.0.1:$first
    redis-cli -p $last cluster failover

END
wait
