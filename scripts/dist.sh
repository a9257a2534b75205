#!/usr/bin/env bash
# What a release consists of, in target/dist/:
#
#   libtether.so, libtether.so.debug   the module without its debug information, and that information for debuggers
#   tether                             the command line
#   tether_VERSION_ARCH.deb            both with man pages, completions, a configuration file and what monitors need, where dpkg-deb is there
#   SHA256SUMS
#
#   scripts/dist.sh          builds it, unpacks the package and tries a lock with what is in there, also after CONFIG REWRITE
#   scripts/dist.sh --root   the same, and installs the package into a new Debian (as root, with debootstrap), tries it there and
#                            removes it: the server must start after each step
#
# PROFILE=1 lays the module's code out by what scripts/profile.sh has recorded.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

DIST=$PWD/target/dist
VERSION=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
TMP=$(mktemp -d)
server=

clean_up() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    [ ! -e "$TMP/root/proc/self" ] || umount "$TMP/root/proc" || true
    rm -rf "$TMP"
}
trap clean_up EXIT

say() { printf 'dist: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# ---- what is built --------------------------------------------------------------------------------------------

build() {
    local built
    scripts/build.sh
    built=$(cargo build --package tether-cli --release --message-format=json-render-diagnostics |
        sed -n 's/.*"executable":"\([^"]*\/tether\)".*/\1/p' | tail -n 1)
    rm -rf "$DIST"
    mkdir -p "$DIST"
    cp target/release/libtether.so "$built" "$DIST"
    if command -v objcopy >/dev/null; then
        (
            cd "$DIST"
            objcopy --only-keep-debug libtether.so libtether.so.debug
            chmod -x libtether.so.debug
            objcopy --strip-unneeded --add-gnu-debuglink=libtether.so.debug libtether.so
            objcopy --strip-all tether
        )
    fi
}

# A page or text as Debian wants it: compressed, without the time.
compressed() { mkdir -p "${2%/*}" && gzip -9n < "$1" > "$2"; }

# package: as dpkg-deb wants its content, in $TMP/package.
package() {
    local to=$TMP/package doc=$TMP/package/usr/share/doc/tether shell page arch
    arch=$(dpkg --print-architecture)
    install -D -m 755 "$DIST/libtether.so" "$to/usr/lib/tether/libtether.so" # servers want it executable
    install -D -m 755 "$DIST/tether" "$to/usr/bin/tether"
    install -D -m 644 packaging/tether.conf "$to/etc/tether/tether.conf"
    "$DIST/tether" man "$TMP/man"
    for page in "$TMP"/man/*.1; do compressed "$page" "$to/usr/share/man/man1/${page##*/}.gz"; done
    for shell in bash:bash-completion/completions/tether zsh:zsh/vendor-completions/_tether fish:fish/vendor_completions.d/tether.fish; do
        mkdir -p "$to/usr/share/$(dirname "${shell#*:}")"
        "$DIST/tether" completions "${shell%%:*}" > "$to/usr/share/${shell#*:}"
    done
    install -D -m 644 -t "$doc" README.md docs/commands.md docs/operations.md
    install -D -m 644 -t "$to/usr/share/tether/monitoring" packaging/monitoring/{tether.lua,prometheus.yml,alerts.yml,board.json}
    install -D -m 644 LICENSE "$doc/copyright"
    compressed CHANGELOG.md "$doc/changelog.gz"

    # What the programs are linked with says which versions of the libraries are needed.
    mkdir -p "$TMP/needs/debian" "$to/DEBIAN"
    : > "$TMP/needs/debian/control"
    local needs
    needs=$(cd "$TMP/needs" && dpkg-shlibdeps -O -e"$to/usr/bin/tether" -e"$to/usr/lib/tether/libtether.so" 2>/dev/null |
        sed -n 's/^shlibs:Depends=//p')
    echo /etc/tether/tether.conf > "$to/DEBIAN/conffiles"
    install -m 755 -t "$to/DEBIAN" packaging/{prerm,postinst,postrm}
    install -m 644 packaging/triggers "$to/DEBIAN/triggers"
    cat > "$to/DEBIAN/control" <<END
Package: tether
Version: $VERSION
Architecture: $arch
Maintainer: the authors of tether <tether@localhost>
Installed-Size: $(du -k -s "$to" | cut -f 1)
Depends: $needs
Suggests: redis-server (>= 5:7.0) | valkey-server
Section: database
Priority: optional
Description: locks in Redis and Valkey that end with their holder
 A module for Redis 7.0 and later and Valkey: locks and temporary keys that live
 as long as the connection that made them, so that no time limit has to be
 guessed. Fair queues, fencing tokens, readers and writers, semaphores.
 .
 The command line runs programs while they hold a lock, and shows who holds what.
END
    chmod -R u=rwX,go=rX "$to"
    dpkg-deb --root-owner-group --build "$to" "$DIST/tether_${VERSION}_$arch.deb" >/dev/null
}

# ---- what is tried --------------------------------------------------------------------------------------------

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# In which root programs run: "chroot FOLDER".
within=()
within() { ${within[@]+"${within[@]}"} "$@"; }

# start SERVER FILE ARGUMENT...: a server with this configuration, until it answers.
start() {
    port=$(free_port)
    ${within[@]+"${within[@]}"} "$@" --port "$port" --bind 127.0.0.1 --dir /tmp --save '' > "$TMP/log" & # not by its function: this is the server's own id
    server=$!
    for _ in $(seq 100); do
        [ "$(ask PING 2>/dev/null)" != +PONG ] || return 0
        kill -0 "$server" 2>/dev/null || break
        sleep 0.1
    done
    cat "$TMP/log" >&2
    server=
    die "the server does not start"
}

stop() {
    kill "$server"
    wait "$server" || true
    server=
}

# ask WORD...: one command to the server; prints the first line of its reply.
ask() {
    local said
    exec 3<>"/dev/tcp/127.0.0.1/$port" || return 1
    printf '%s\r\n' "$*" >&3
    IFS= read -r said <&3
    exec 3>&-
    printf '%s\n' "${said%$'\r'}"
}

# try TETHER SERVER FILE ARGUMENT...: a lock with this command line, on a server that is started so; and again after CONFIG REWRITE.
try() {
    local round said count tether=("$1")
    shift
    for round in once twice again; do
        start "$@"
        tether=("${tether[0]}" --url "redis://127.0.0.1:$port")
        # shellcheck disable=SC2016 # the command's own variable
        said=$(within "${tether[@]}" run --nowait report -- sh -c 'echo "held with ${TETHER_TOKEN:?}"') || { cat "$TMP/log" >&2; die "no lock"; }
        [[ $said == "held with "* ]] || die "tether run said: $said"
        within "${tether[@]}" doctor > "$TMP/doctor" || { cat "$TMP/doctor" >&2; die "tether doctor finds something wrong"; }
        within "${tether[@]}" metrics | grep -q '^tether_grants_total 1$' || die "no grant was counted"
        # Sentinel sends this at each failover.
        said=$(ask CONFIG REWRITE)
        [ "$said" = +OK ] || die "CONFIG REWRITE, $round: $said"
        count=$(within grep -c '^loadmodule .*tether' "$2") || true
        [ "$count" = 1 ] || die "after CONFIG REWRITE $2 has $count loadmodule lines"
        stop
    done
    cat "$TMP/doctor"
}

# In a new Debian of the same release as here, by the same mirror.
try_in_new_root() {
    local root=$TMP/root file mirror started=(redis-server /etc/redis/redis.conf --daemonize no --logfile '' --supervised no)
    [ "$(id -u)" = 0 ] || die "a new root is for root only"
    scripts/need.sh debootstrap
    mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep debian | head -n 1)
    debootstrap --variant=minbase --include=ca-certificates "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$root" ${mirror:+"$mirror"} > "$TMP/log" 2>&1 ||
        { tail "$TMP/log" >&2; die "debootstrap failed"; }
    cp -a /etc/apt/. "$root/etc/apt/"
    cp -aL /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
    cp -L /etc/resolv.conf "$root/etc/"
    cp "$DIST"/*.deb "$root/tmp/"
    printf '#!/bin/sh\nexit 101\n' > "$root/usr/sbin/policy-rc.d" # no service is started in there
    chmod 755 "$root/usr/sbin/policy-rc.d"
    mount -t proc proc "$root/proc"
    within=(chroot "$root" env -i LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin)
    say "apt install ./${DIST##*/}/*.deb redis-server, in a new Debian"
    { within apt-get -qq update && within sh -c 'apt-get -qq -y install --no-install-recommends /tmp/*.deb redis-server'; } > "$TMP/log" 2>&1 ||
        { tail -n 30 "$TMP/log" >&2; die "apt could not install it"; }
    within sh -c 'printf "loadmodule /usr/lib/tether/libtether.so\ninclude /etc/tether/tether.conf\n" >> /etc/redis/redis.conf'
    try tether "${started[@]}"
    for file in usr/share/man/man1/tether-run.1.gz usr/share/bash-completion/completions/tether etc/tether/tether.conf usr/share/doc/tether/commands.md.gz; do
        [ -s "$root/$file" ] || [ -s "$root/${file%.gz}" ] || die "$file is missing"
    done
    within dpkg --verify tether || die "its files are not as the package says"
    # A server that needs it would not start again.
    ! within apt-get -qq -y purge tether > "$TMP/log" 2>&1 || die "it is removed although a server loads it"
    grep -q '^/etc/redis/redis.conf$' "$TMP/log" || { cat "$TMP/log" >&2; die "it does not say which server loads it"; }
    try tether "${started[@]}"
    within sed -i /tether/d /etc/redis/redis.conf
    within apt-get -qq -y purge tether > "$TMP/log" 2>&1 || { cat "$TMP/log" >&2; die "it cannot be removed"; }
    [ ! -e "$root/etc/tether" ] && [ ! -e "$root/usr/lib/tether" ] || die "it leaves files behind"
    start "${started[@]}"
    [[ $(ask LOCK.SERVER) == "-ERR unknown command"* ]] || die "the module is still there"
    stop
    umount "$root/proc"
    say "installed, tried and removed in a new Debian"
}

# lines MODULE SETTINGS: a server's file, as tether.conf wants it.
lines() { printf 'loadmodule "%s"\ninclude "%s"\n' "$1" "$2" > "$TMP/server.conf"; }

scripts/need.sh server python
[ "$(uname -s)" != Linux ] || scripts/need.sh objcopy
build
unpacked=$TMP/unpacked
if command -v dpkg-deb >/dev/null; then
    scripts/need.sh dpkg-shlibdeps
    package
    dpkg-deb -x "$DIST"/*.deb "$unpacked"
    lines "$unpacked/usr/lib/tether/libtether.so" "$unpacked/etc/tether/tether.conf"
    try "$unpacked/usr/bin/tether" "$(scripts/need.sh --server-path)" "$TMP/server.conf"
else
    say "no dpkg-deb is here, so no .deb is made"
    lines "$DIST/libtether.so" "$PWD/packaging/tether.conf"
    try "$DIST/tether" "$(scripts/need.sh --server-path)" "$TMP/server.conf"
fi
(cd "$DIST" && sha256sum -- * > "$TMP/sums" && mv "$TMP/sums" SHA256SUMS)
(cd "$DIST" && ls -l)
[ "${1:-}" != --root ] || try_in_new_root
