#!/usr/bin/env bash
# The C client of clients/c, on the hiredis of servers.sh:
#
#   scripts/c.sh                    vectors, random histories, tests and examples with sanitizers; tests and examples with valgrind
#                                   (TETHER_SERVER, TETHER_MODULE; CC=clang; TETHER_STEPS=100000 cancelled requests)
#   scripts/c.sh --vectors          the vectors alone, which need no server
#   scripts/c.sh --lint             clang-format; gcc and clang without a warning; compiled as C++ and on libvalkey
#   scripts/c.sh --conform [ARGS]   conform with its adapter (ARGS of conform.py: --only NAME); 300 faults:
#                                   TETHER_FAULTS=300 scripts/c.sh --conform --only faults
#
# Everything is built in target/c/. The last line of a run is in cargo's form, which .ci/run sums.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

ROOT=$PWD/target/c
SOURCES=$PWD/clients/c
HIREDIS=$PWD/.servers/hiredis
CC=${CC:-gcc}
FLAGS=(-std=gnu11 -g -Wall -Wextra -Wpedantic -Werror -isystem "$HIREDIS/include")
LIBRARIES=(-L"$HIREDIS/lib" -lhiredis -Wl,-rpath,"$HIREDIS/lib" -lm)
SANITIZED=(-O1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)

say() { printf 'c: %s\n' "$*" >&2; }

case ${1:-} in
    --vectors | --lint) ;;
    # shellcheck source=scripts/tested.sh
    *) . scripts/tested.sh ;;
esac

# build NAME SOURCE FLAGS.. LIBRARIES..: a program with the client in it.
build() {
    local name=$1 source=$2
    shift 2
    "$CC" "${FLAGS[@]}" -I "$SOURCES" -o "$ROOT/$name" "$source" "$@" "${LIBRARIES[@]}"
}

# The loop of redis-server, which no library has: from its source, if that can be had.
fetch_ae() {
    local source=$PWD/.servers/source-redis-7.0 file
    [ -d "$source" ] || scripts/servers.sh source-redis-7.0 || return
    mkdir -p "$ROOT/ae"
    cp "$source"/src/{ae,monotonic,fmacros}.h "$ROOT/ae"
    for file in ae monotonic anet zmalloc redisassert; do
        "$CC" -g -O1 -w -I "$source/src" -c -o "$ROOT/ae/$file.o" "$source/src/$file.c"
    done
}

# programs SUFFIX FLAGS..: the tests and examples on a server, in one form.
programs() {
    local client=$ROOT/tether-$1.o suffix=$1
    shift
    "$CC" "${FLAGS[@]}" "$@" -c -o "$client" "$SOURCES/tether.c"
    build "live-$suffix" "$SOURCES/tests/live.c" "$client" "$@" -levent -pthread
    build "example-libevent-$suffix" "$SOURCES/examples/libevent.c" "$client" "$@" -levent
    build "example-libev-$suffix" "$SOURCES/examples/libev.c" "$client" "$@" -lev
    build "example-libuv-$suffix" "$SOURCES/examples/libuv.c" "$client" "$@" -luv
    [ $HAS_AE = 0 ] || build "example-ae-$suffix" "$SOURCES/examples/ae.c" "$client" -isystem "$ROOT/ae" "$ROOT"/ae/*.o "$@"
}

# The headers of libvalkey, which the package of its Python binding has with it.
fetch_valkey() {
    [ -d "$ROOT/valkey/include" ] && return
    rm -rf "$ROOT/valkey"
    mkdir -p "$ROOT/valkey"
    python3 -m pip -q --disable-pip-version-check download --no-deps --no-binary :all: -d "$ROOT/valkey" libvalkey==4.2.1
    tar -xzf "$ROOT"/valkey/*.tar.gz -C "$ROOT/valkey" --strip-components=3 --wildcards '*/vendor/libvalkey/include'
}

vectors() {
    local file files=()
    build vectors "$SOURCES/tests/vectors.c" "${SANITIZED[@]}" -ljansson || return # left of `||`, `set -e` has no effect
    for file in clients/protocol/vectors/*.json; do
        case $file in */schema.json | */preludes.json) ;; *) files+=("$file") ;; esac
    done
    "$ROOT/vectors" clients/protocol/vectors/preludes.json "${files[@]}" "$SOURCES/tests/vectors.json"
}

# One line in cargo's form for several, which are shown without its first word, so that .ci/run does not count them twice.
sum() {
    awk 'sub(/^test result: /, "") {passed += $2; failed += $4} {print} END {
        printf "test result: %s. %d passed; %d failed; 0 ignored\n", failed || !passed ? "FAILED" : "ok", passed, failed
        exit (failed || !passed)}'
}

mkdir -p "$ROOT"
case ${1:-} in
    --lint)
        scripts/need.sh cc clang clang-format python pip jansson libevent
        scripts/servers.sh hiredis
        clang-format --style=file:"$SOURCES/.clang-format" --dry-run -Werror \
            "$SOURCES"/*.[ch] "$SOURCES"/{tests,examples}/*.c clients/protocol/conform/adapters/c.c
        for CC in gcc clang; do
            "$CC" "${FLAGS[@]}" -std=c11 -O2 -Wshadow -Wconversion -Wstrict-prototypes -c -o "$ROOT/lint.o" "$SOURCES/tether.c"
            "$CC" "${FLAGS[@]}" -O2 -c -o "$ROOT/lint.o" "$SOURCES/tests/vectors.c"
        done
        fetch_valkey
        "$CC" "${FLAGS[@]}" -DTETHER_VALKEY -isystem "$ROOT/valkey/include" -c -o "$ROOT/lint.o" "$SOURCES/tether.c"
        clang --analyze -o "$ROOT/lint.plist" -Xanalyzer -analyzer-werror -isystem "$HIREDIS/include" "$SOURCES/tether.c"
        echo '#include "tether.h"' | clang -x c++ -Wall -Wextra -Wpedantic -Werror -I "$SOURCES" -fsyntax-only -
        exit
        ;;
    --vectors)
        scripts/need.sh cc jansson
        scripts/servers.sh hiredis
        vectors
        exit
        ;;
    --conform)
        shift
        scripts/need.sh cc python jansson libevent
        scripts/servers.sh hiredis
        build adapter clients/protocol/conform/adapters/c.c "$SOURCES/tether.c" "${SANITIZED[@]}" -ljansson -levent
        exec python3 clients/protocol/conform/conform.py --server "$TETHER_SERVER" --module "$TETHER_MODULE" "$@" -- "$ROOT/adapter"
        ;;
esac

scripts/need.sh cc python valgrind jansson libevent libev libuv
scripts/servers.sh hiredis
HAS_AE=1
fetch_ae || { HAS_AE=0; say "not tried: the example on ae, since Redis' source cannot be had here"; }
build fuzz "$SOURCES/tests/fuzz.c" "${SANITIZED[@]}"
programs sanitized "${SANITIZED[@]}"
programs valgrind -O1
echo '#include <stdlib.h>' > "$ROOT/readme.c"
sed -n '/^```c$/,/^```$/{/^```/d;p}; /^\/\/ prints: released$/q' "$SOURCES/README.md" | sed 's/ 6379/ atoi(getenv("TETHER_PORT"))/' >> "$ROOT/readme.c"
build example-readme "$ROOT/readme.c" "$ROOT/tether-valgrind.o" -Wno-unused-parameter -Wno-missing-field-initializers -levent
# What takes the place of the patched hiredis' lock is shown as a part of a program: it is compiled.
{
    printf '#include "tether.h"\nvoid work(tether_lock *lock);\nvoid stop(const char *why);\nvoid part(tether *t, const char *me);\n'
    sed -n '/^This is the same with `tether.c`/,/^| with the patch/{/^```c$/,/^```$/{/^```/d;s/^tether_settp.*/void part(tether *t, const char *me) { & }/p;t;p}}' "$SOURCES/README.md"
} > "$ROOT/part.c"
grep -q '^void part.*{ tether_settp' "$ROOT/part.c"
build part.o "$ROOT/part.c" -c -Wno-unused-parameter
commands=()
for program in "$ROOT"/{live,example-*}-sanitized "$ROOT/example-readme"; do
    commands+=("$(printf %q "$program")")
done
kinds="--show-leak-kinds=definite,indirect --errors-for-leak-kinds=definite,indirect"
for program in "$ROOT"/{live,example-*}-valgrind; do
    commands+=("valgrind -q --error-exitcode=9 --leak-check=full $kinds $(printf %q "$program")")
done
# What breaks off says no sum.
failed='test result: FAILED. 0 passed; 1 failed'
{
    vectors || echo "$failed"
    "$ROOT/fuzz" || echo "$failed"
    python3 "$SOURCES/tests/run.py" "$TETHER_SERVER" "$TETHER_MODULE" "${commands[@]}" || echo "$failed"
} | sum
