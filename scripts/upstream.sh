#!/usr/bin/env bash
# The servers' own test suites, on servers with the module and on servers without: no test may fail that passes without.
#
#   scripts/upstream.sh [NAME...]            all files of the suites of these servers (redis-7.0 redis-8.0 valkey-9.1)
#   scripts/upstream.sh --short [NAME...]    the files in which modules have the most to say, for CI
#   FILES="unit/multi unit/wait" scripts/upstream.sh redis-7.0      only these files
#   PART=2/4 scripts/upstream.sh redis-7.0                          each fourth file, from the second on
#
# Each file runs by itself in two ways: `own`, where the suite starts the servers it wants, with a loadmodule line in
# their configuration, and nobody uses the module; and `external`, on one server of ours where somebody watched before, so
# that the module hears of everything. The suites take tests about replication and files for `own` only.
#
# A test that fails with the module and not without is tried twice more with, and as often without, unless it is EXPECTED; it
# counts if it fails each time with, and never without. Without the module all of it runs as well, unless --short is given:
# there only what failed.
#
# The suites' sources come by scripts/servers.sh. KEEP=folder keeps all that was printed (its path has no blanks).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'upstream: %s\n' "$*" >&2; }

# What only a module passes that can load a new data set beside the old one and then drop either. This one cannot: what the
# files say of locks is taken in as it is read. So it does not declare REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD, and a server
# with `repl-diskless-load swapdb` loads from disk (docs/operations.md).
EXPECTED='Diskless load swapdb \((async_loading|different replid)\): .*|Blocked commands and configs during async-loading'
EXPECTED+='|Test main channel connection drops while loading rdb \(diskless\)|Main db not affected when fail to diskless load'
# These wait for the line that such a replica logs as it begins to read, and one that loads from disk only at the end. Without the
# module they fail in the same way where `repl-diskless-load` is `disabled`. One would break off its file, so it is skipped.
EXPECTED+='|diskless (slow|fast|all|timeout) replicas drop during rdb pipe|diskless replication read pipe cleanup'
SKIPPED="diskless replication child being killed is collected"
# unit/oom-score-adj wants rights over the kernel, unit/printver tests nothing; the rest measure memory or time for minutes.
LEFT_OUT="unit/oom-score-adj unit/printver integration/corrupt-dump-fuzzer integration/dismiss-mem"
SHORT="unit/multi unit/acl unit/pubsub unit/tracking unit/pause unit/wait unit/scan unit/info unit/keyspace unit/lazyfree
    unit/slowlog unit/replybufsize unit/introspection-2 unit/cluster/misc unit/type/list-3
    integration/replication-2 integration/replication-3 integration/aof integration/rdb integration/psync2-reg"

# ---- one file of one suite, in one way: in one of two processes, SLOT, each with trees of its own ----------------

# attempt FILE WAY with|without NUMBER: runs it, and leaves which tests passed and which did not in ok.* and bad.*
attempt() {
    local file=$1 way=$2 module=$3 number=$4 tree=$WORK/$3.$SLOT log
    log=$WORK/out/${file//\//-}.$way.$module.$number
    local words=(--single "$file" --clients 1 --timeout 300 --baseport $((22000 + 1000 * SLOT)) --portcount 500
        --skiptest "$SKIPPED")
    local server=""
    if [ "$way" = external ]; then
        local port=$((21500 + SLOT)) folder=$WORK/external.$SLOT
        words+=(--host 127.0.0.1 --port "$port")
        rm -rf "$folder"
        mkdir -p "$folder"
        (cd "$folder" && exec "$tree/src/$FAMILY-server" "$tree/tests/assets/default.conf" --port "$port" --dir "$folder" > log 2>&1) &
        server=$!
        use "$port" "$module"
    fi
    (cd "$tree" && TERM=dumb timeout -k 10 900 ./runtest "${words[@]}") > "$log" 2>&1 </dev/null || true
    if [ -n "$server" ]; then
        kill "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
    fi
    # Of a file that breaks off only that is known.
    sed -n 's/^\[ok\]: \(.*\) ([0-9]* ms)$/\1/p' "$log" | sort > "$log.ok"
    {
        sed -n 's/^\[err\]: \(.*\) in tests\/.*/\1/p' "$log"
        is_whole "$log" "$way" || echo "the file as a whole"
    } | sort -u > "$log.bad"
}

# is_whole LOG WAY: whether each test of the file was run. Where a test hangs, the suite gives up the file with [TIMEOUT], and where
# a server does not start, with an [err] that names no test; it says all the same which tests failed. Only for `external` may a
# file have no tests.
is_whole() {
    grep -q 'All tests passed\|The following tests failed' "$1" || return 1
    ! grep -q '^\[TIMEOUT\]' "$1" || return 1
    awk '/^\[err\]: / && !/ in tests\// { exit 1 }' "$1" || return 1
    [ "$2" = external ] || [ -s "$1.ok" ]
}

# Waits until the server answers; with the module, somebody comes who watches. (Nobody is granted anything: replicas and
# files must be told of that.)
use() {
    local port=$1 module=$2 try
    for try in {1..100}; do
        [ "$("$CLI" -p "$port" PING 2>/dev/null)" != PONG ] || break
        sleep 0.1
    done
    [ "$module" = without ] || "$CLI" -3 -p "$port" WATCHEX watched >/dev/null
}

# judge FILE WAY: a line for each test that fails with the module only, and the numbers of those that passed.
judge() {
    local file=$1 way=$2 out=$WORK/out/${1//\//-}.$2 ours expected again
    attempt "$file" "$way" with 1
    ours=$(cat "$out.with.1.bad")
    if [ -n "$ours" ] || [ "$MODE" != --short ]; then
        attempt "$file" "$way" without 1
        ours=$(comm -23 <(echo "$ours") "$out.without.1.bad" | sed '/^$/d')
    fi
    expected=$(grep -xE "$EXPECTED" <<< "$ours" || true)
    ours=$(grep -vxE "$EXPECTED" <<< "$ours" || true)
    for again in 2 3; do
        [ -n "$ours" ] || break
        attempt "$file" "$way" with $again
        attempt "$file" "$way" without $again
        ours=$(echo "$ours" | comm -12 - "$out.with.$again.bad" | comm -23 - "$out.without.$again.bad")
    done
    {
        echo "passed $(wc -l < "$out.with.1.ok")"
        [ ! -e "$out.without.1.ok" ] || echo "without $(wc -l < "$out.without.1.ok")"
        [ ! -s "$out.with.1.bad" ] || sed 's/^/failed /' "$out.with.1.bad"
        [ -z "$expected" ] || sed 's/^/expected /' <<< "$expected"
        [ -z "$ours" ] || sed "s|^|OURS $file ($way): |" <<< "$ours"
    } > "$out.verdict"
    say "$NAME, $file ($way): $(grep -c . "$out.with.1.ok") passed$(sed 's/.*/; not: &/' "$out.with.1.bad" | tr '\n' ' ')"
}

if [ "${1:-}" = --judge ]; then
    judge "$2" "$3"
    exit
fi

# ---- all of it -------------------------------------------------------------------------------------------------

MODE=all
PART=${PART:-1/1}
if [ "${1:-}" = --short ]; then
    MODE=--short
    shift
fi
names=("$@")
[ $# -gt 0 ] || names=(redis-7.0 redis-8.0 valkey-9.1)

scripts/need.sh tclsh
MODULE=${TETHER_MODULE:-}
if [ -z "$MODULE" ]; then
    scripts/build.sh
    MODULE=$PWD/target/release/libtether.so
fi
# The suites' servers have ports that are agreed on: one run at a time.
if command -v flock > /dev/null; then
    exec 9> "${TMPDIR:-/tmp}/tether-upstream.$UID.lock"
    flock 9
fi
TMP=${KEEP:-$(mktemp -d)}
mkdir -p "$TMP"
[ -n "${KEEP:-}" ] || trap 'rm -rf "$TMP"' EXIT

# programs FOLDER SERVER: what a suite finds under src/ where a server was built.
programs() {
    local to=$1 server=$2 program
    for program in server sentinel check-aof check-rdb; do
        # It decides by its name what it is.
        if [ "$(head -c 2 "$server/redis-server")" = '#!' ]; then
            sed -e "s|^here=.*|here='$server'|" -e "s|\"\$here/redis-server\"|'$to/$FAMILY-$program'|" "$server/redis-server"
        else
            printf "#!/usr/bin/env bash\nexec -a '%s' '%s' \"\$@\"\n" "$to/$FAMILY-$program" "$server/redis-server"
        fi > "$to/$FAMILY-$program"
    done
    for program in cli benchmark; do
        printf "#!/usr/bin/env bash\nexec '%s' \"\$@\"\n" "$server/redis-$program" > "$to/$FAMILY-$program"
    done
    chmod +x "$to/$FAMILY"-*
}

prepare() {
    local tree source=$PWD/.servers/source-$NAME config
    mkdir -p "$WORK/out"
    for tree in {with,without}.{0,1}; do
        rm -rf "${WORK:?}/$tree"
        cp -r "$source/." "$WORK/$tree"
        programs "$WORK/$tree/src" "$PWD/.servers/$NAME"
    done
    # The suites take a line of a configuration apart at its blanks, and write a quoted word in braces.
    ln -sf "$MODULE" "$WORK/libtether.so"
    for config in "$WORK"/with.*/tests/assets/{default,minimal,minimal-cluster}.conf; do
        [ ! -e "$config" ] || printf '\nloadmodule %s\n' "$WORK/libtether.so" >> "$config"
    done
}

say "with $MODULE"
failed=0 total=0 ran=()
for NAME in "${names[@]}"; do
    if ! scripts/servers.sh "$NAME" "source-$NAME"; then
        say "$NAME: there is no source to test with; left out"
        continue
    fi
    ran+=("$NAME")
    FAMILY=${NAME%-*} WORK=$TMP/$NAME CLI=$PWD/.servers/$NAME/redis-cli
    export NAME FAMILY WORK CLI MODE MODULE
    prepare
    files=${FILES:-}
    if [ -z "$files" ]; then
        files=$SHORT
        [ "$MODE" = --short ] || files=$(cd "$WORK/without.0" && ./runtest --list-tests)
    fi
    at=0
    for file in $files; do
        [ $((at++ % ${PART#*/})) = $((${PART%/*} - 1)) ] || continue
        [ -e "$WORK/without.0/tests/$file.tcl" ] && [[ " $LEFT_OUT " != *" $file "* ]] || continue
        printf '%s own\n%s external\n' "$file" "$file"
    done | xargs -P 2 --process-slot-var=SLOT -L 1 "$PWD/scripts/upstream.sh" --judge
    sum() { cat "$WORK"/out/*.verdict | awk -v word="$1" '$1 == word { n += $2 } END { print n + 0 }'; }
    say "$NAME: $(sum passed) tests passed with the module$([ "$MODE" = --short ] || echo ", $(sum without) without"); failed with it at first: $(cat "$WORK"/out/*.verdict | grep -c '^failed ' || true)"
    total=$((total + $(sum passed)))
    cat "$WORK"/out/*.verdict | sed -n "s/^expected /upstream: fails with the module only, as it must: $NAME, /p"
    cat "$WORK"/out/*.verdict | sed -n "s/^OURS /upstream: FAILS WITH THE MODULE ONLY: $NAME, /p"
    failed=$((failed + $(cat "$WORK"/out/*.verdict | grep -c '^OURS ' || true)))
done

[ $total -gt 0 ] || { say "no test ran"; exit 1; }
echo "upstream, ${ran[*]}: tests that fail with the module only: $failed"
echo "test result: $([ $failed = 0 ] && echo ok || echo FAILED). $total passed; $failed failed"
[ $failed = 0 ]
