#!/usr/bin/env bash
# The story of a lock, told with nothing but redis-cli.
#
#   examples/redis-cli/story.sh [host [port]]        (127.0.0.1 and 6379 unless told)
#   REDIS_CLI=valkey-cli examples/redis-cli/story.sh (another client program)
#
# A holder takes the lock. Ann, Bob and Cy find it taken and ask to be told when it goes. The holder is killed
# with SIGKILL, so it cannot tidy up; the server does that. All three hear it, and one of them is the next holder.
#
# The end is 0 when all of that happened, 1 when not. Nobody waits for ever. Works with bash 3.2 and later.
set -u

host=${1:-127.0.0.1}
port=${2:-6379}
cli=${REDIS_CLI:-$(command -v redis-cli || command -v valkey-cli || echo redis-cli)}
patience=60 # seconds that anyone waits for anything

dir=$(mktemp -d)
story=$dir/story # every line that is told, so that the players can wait for each other
: > "$story"
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM PIPE

tell() { echo "$*" | tee -a "$story"; }
fail() { tell "The story fails: $*"; exit 1; }

# await COUNT PATTERN: until that many lines of the story match.
await() {
    local tries
    for ((tries = 0; tries < patience * 10; tries++)); do
        [ "$(grep -c "$2" "$story")" -lt "$1" ] || return 0
        grep -q '^The story fails' "$story" && exit 1
        sleep 0.1
    done
    fail "waited $patience s in vain for $1 x '$2'"
}

# connect NAME: a connection of our own that stays open, which is what a lock needs. `redis-cli SETTP lock me` alone
# would connect, take the lock, hang up, and by that give it back. So we let a redis-cli read its commands from a
# pipe (our file descriptor 3) and read its answers from another one (4).
#   -3                  RESP3, the protocol with push frames: the server may speak without being asked
#   --show-pushes yes   print them also when the output is no terminal
#   --csv               one line for each answer and each push
connect() {
    name=$1
    mkfifo "$dir/$name.in" "$dir/$name.out"
    "$cli" -h "$host" -p "$port" -3 --show-pushes yes --csv < "$dir/$name.in" > "$dir/$name.out" 2>&1 &
    client=$!
    exec 3> "$dir/$name.in" 4< "$dir/$name.out"
    heard=""
}

# ask COMMAND...: leaves the reply in $answer, and adds the pushes that came before it to $heard.
ask() {
    local line
    echo "$*" >&3
    while read -r -t "$patience" line <&4; do
        line=${line//\"/}
        case $line in
            watchex,*) heard="$heard $line" ;;
            *) answer=$line && return ;;
        esac
    done
    fail "$name got no answer to '$*'"
}

# hang_up: the end of the pipe is the end of redis-cli, and of its connection.
hang_up() {
    exec 3>&- 4<&-
    wait "$client"
}

watcher() {
    connect "$1"

    ask SETTP lock "$name"
    [ "$answer" = 0 ] || fail "$name expected the lock to be taken, but SETTP said: $answer"
    tell "$name: SETTP lock $name -> 0, somebody has it"

    # From the moment of this reply on, nothing that happens to the key escapes us.
    ask WATCHEX lock
    [ "$answer" = EXIST ] || fail "$name expected EXIST, but WATCHEX said: $answer"
    tell "$name: WATCHEX lock -> EXIST, I shall be told"

    # The push arrives by itself, but redis-cli looks at its connection only while it waits for an answer: so we ask it
    # something now and then. (A client with an event loop needs no such thing: see the examples in C and Python.)
    local tries
    for ((tries = 0; tries < patience * 10; tries++)); do
        ask PING
        [ -z "$heard" ] || break
        sleep 0.1
    done
    # By now another one may have the lock already; then the ADD of that stands behind the DEL.
    case $heard in
        " watchex,lock,DEL"*) tell "$name: hears: watchex lock DEL" ;;
        *) fail "$name was to hear the lock go, but heard:${heard:- nothing}" ;;
    esac

    # Everyone may try; the server lets one of them win.
    ask SETTP lock "$name"
    case $answer in
        1) tell "$name: tries SETTP lock $name -> 1, it is mine" ;;
        0) tell "$name: tries SETTP lock $name -> 0, too late" ;;
        *) fail "$name tried SETTP, which said: $answer" ;;
    esac

    # Hanging up gives the lock back, so the winner stays until the others have tried and the count is done.
    await 1 '^Now the lock says'
    hang_up
}

command -v "$cli" > /dev/null || fail "there is no program $cli here (REDIS_CLI can name another one)"

connect holder
ask SETTP lock holder
[ "$answer" = 1 ] || fail "the holder wanted the lock, but SETTP said: $answer"
tell "holder: SETTP lock holder -> 1, it is mine"

watchers=""
for one in ann bob cy; do
    watcher "$one" &
    watchers="$watchers $!"
done
await 3 'WATCHEX lock -> EXIST'

tell "The holder is killed with SIGKILL."
{ kill -KILL "$client" && wait "$client"; } 2> /dev/null # (waiting here keeps bash from reporting it)

await 3 'tries SETTP'
winners=$(sed -n 's/: tries SETTP.*it is mine$//p' "$story")
owner=$("$cli" -h "$host" -p "$port" GET lock)
[ "$winners" = "$owner" ] || fail "the winners are: '$winners', and the lock says: '$owner'"
tell "Now the lock says: $owner"

for one in $watchers; do
    wait "$one" || exit 1
done

# All have hung up, the winner too: nothing may be left behind.
for ((tries = 0; tries < patience * 10; tries++)); do
    if [ "$("$cli" -h "$host" -p "$port" EXISTS lock)" = 0 ]; then
        tell "All have gone, and the lock with its last holder. The end."
        exit 0
    fi
    sleep 0.1
done
fail "the lock is still there after its holder has gone"
