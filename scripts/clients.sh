#!/usr/bin/env bash
# Runs stock clients against the module, and holds what they do against docs/clients.md (see tests/clients/check.py):
#
#   scripts/clients.sh                   all of them
#   scripts/clients.sh redis-py fred     those with one of these words in their names there
#
# SERVER=/path/to/redis-server takes another server than Valkey 9.1 of servers.sh.
#
# The clients come from PyPI, npm, crates.io and Go's module proxy, in the versions that tests/clients/ names, and from Debian sid,
# in those that it has on the day; with them come Ruby, PHP, Perl and Lua. All are put into target/clients/<language>/, nothing is
# installed but what need.sh names: Python, Node.js, Go and a C compiler. Each gets a program `run`, which runs the programs of tests/clients/<language>/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

ROOT=$PWD/target/clients
SOURCES=$PWD/tests/clients

say() { printf 'clients: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

. scripts/debian.sh

# ---- where the clients come from ------------------------------------------------------------------------------
# Each runs in target/clients/<language>/, which is empty.

fetch_python() {
    python3 -m venv venv >&2
    venv/bin/python -m pip -q install -r "$SOURCES/python/requirements.txt" >&2 || die "pip could not install the clients"
    run 'exec "$here/venv/bin/python" -B "$@"'
}

# Node looks for packages beside the program, and nowhere else.
fetch_node() {
    cp "$SOURCES/node/package.json" .
    npm install --loglevel=error --no-audit --no-fund --no-package-lock --ignore-scripts >&2 || die "npm could not install the clients"
    run 'exec node "$here/$@"'
}

fetch_rust() { run 'exec "$here/target/debug/$@"'; }

fetch_c() { run 'exec "$here/$@"'; }

fetch_go() { run 'exec "$here/bin/$@"'; }

# The rest runs by sid's own loader and libraries, wherever it lies: LIB is where they are.
fetch_ruby() {
    debian unpacked "ruby ruby-redis ruby-redis-client" sid
    run_unpacked 'for folder in "$usr"/lib/ruby/vendor_ruby "$usr"/lib/ruby/[0-9]* "$LIB"/ruby/[0-9]* "$usr"/share/rubygems-integration/all/gems/*/lib; do
    RUBYLIB=${RUBYLIB:+$RUBYLIB:}$folder
done
export RUBYLIB
ours "$usr"/bin/ruby[0-9]* --disable-gems "$@"'
}

fetch_php() {
    debian unpacked "php-cli php-redis php-predis" sid
    run_unpacked 'ours "$usr"/bin/php[0-9]* -n -d include_path=.:"$usr/share/php" -d extension_dir="$(echo "$usr"/lib/php/2*)" -d extension=igbinary.so -d extension=redis.so "$@"'
}

fetch_perl() {
    debian unpacked "libredis-perl libredis-fast-perl" sid
    run_unpacked 'for folder in "$LIB"/perl5/[0-9]* "$usr"/share/perl5 "$LIB"/perl-base "$LIB"/perl/[0-9]* "$usr"/share/perl/[0-9]*; do
    PERL5LIB=${PERL5LIB:+$PERL5LIB:}$folder
done
export PERL5LIB
ours "$usr/bin/perl" "$@"'
}

fetch_lua() {
    debian unpacked "lua5.1 lua-redis" sid
    run_unpacked 'export LUA_PATH="$usr/share/lua/5.1/?.lua" LUA_CPATH="$LIB/lua/5.1/?.so"
ours "$usr/bin/lua5.1" "$@"'
}

run() {
    printf '#!/usr/bin/env bash\nhere=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)\n%s\n' "$1" > run
    chmod +x run
}

run_unpacked() {
    run "usr=\$here/unpacked/usr
LIB=\$(echo \"\$usr\"/lib/*-linux-*)
ours() { exec \"\$LIB\"/ld-linux*.so.* --library-path \"\$LIB\" \"\$@\"; }
$1"
}

# ---- what of tests/clients/ must be built ---------------------------------------------------------------------

build_node() { cp "$SOURCES"/node/*.mjs .; }

build_rust() {
    CARGO_PROFILE_DEV_DEBUG=0 cargo build -q --manifest-path "$SOURCES/rust/Cargo.toml" --target-dir target
    # Its lock file says what of each dependency there is on the day; what is named is pinned.
    rm -f "$SOURCES/rust/Cargo.lock"
}

build_c() {
    local hiredis=$SOURCES/../../.servers/hiredis
    cc -O1 -Wall -Werror -o hiredis "$SOURCES/c/hiredis.c" -I"$hiredis/include" -L"$hiredis/lib" -lhiredis -Wl,-rpath,"$hiredis/lib"
}

build_go() {
    (cd "$SOURCES/go" && CGO_ENABLED=0 go build -buildvcs=false -o "$ROOT/go/bin/" ./goredis ./redigo ./rueidis)
}

# ---- all of it -------------------------------------------------------------------------------------------------

scripts/need.sh python
IFS=' ' read -r -a languages < <("$SOURCES/check.py" --languages "$@")
for NAME in "${languages[@]}"; do
    case $NAME in
        node) scripts/need.sh node npm ;;
        c) scripts/need.sh cc && scripts/servers.sh hiredis ;;
        rust) scripts/need.sh cargo ;;
        go) scripts/need.sh go ;;
    esac
done
[ -n "${SERVER:-}" ] || scripts/servers.sh valkey-9.1
MODULE=${TETHER_MODULE:-}
if [ -z "$MODULE" ]; then
    scripts/build.sh
    MODULE=$PWD/target/release/libtether.so
fi

mkdir -p "$ROOT"
TMP=$ROOT/tmp
trap 'rm -rf "$TMP"' EXIT
for NAME in "${languages[@]}"; do
    # Fetched anew when other versions are wanted, or in another way.
    stamp=$({ declare -f "fetch_$NAME" run run_unpacked; cat "$SOURCES/$NAME/requirements.txt" "$SOURCES/$NAME/package.json" 2>/dev/null || true; } | cksum)
    if [ "$(cat "$ROOT/$NAME/stamp" 2>/dev/null)" != "$stamp" ]; then
        say "fetching the clients for $NAME"
        rm -rf "${ROOT:?}/$NAME" "$TMP"
        mkdir -p "$ROOT/$NAME" "$TMP"
        (cd "$ROOT/$NAME" && "fetch_$NAME")
        echo "$stamp" > "$ROOT/$NAME/stamp"
    fi
    if declare -F "build_$NAME" >/dev/null; then
        (cd "$ROOT/$NAME" && "build_$NAME")
    fi
done
"$SOURCES/check.py" "${SERVER:-.servers/valkey-9.1/redis-server}" "$MODULE" "$ROOT" "$@"
