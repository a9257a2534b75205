#!/usr/bin/env bash
# What a release consists of, in target/dist/ (HOMEPAGE=... and MAINTAINER="NAME <ADDRESS>" for the packages of a host):
#
#   libtether.so, libtether.so.debug   the module without its debug information, and that information for debuggers
#   tether                             the command line
#   tether_VERSION_ARCH.deb            both with man pages, completions, a configuration file and what monitors need, where dpkg-deb is there
#   tether-dbgsym_VERSION_ARCH.deb     the module's debug information, where gdb looks for it
#   tether-VERSION-1.ARCH.rpm          what the .deb has, for systems with rpm; it is unpacked here, and tried on no such system
#   tether.spdx.json                   what they are made of: each crate with version, licence and checksum
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
    # Of the packages only: cargo would compile everything anew under it.
    SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
    export SOURCE_DATE_EPOCH
    rm -rf "$DIST"
    mkdir -p "$DIST"
    cp target/release/libtether.so "$built" "$DIST"
    if command -v objcopy >/dev/null; then
        (
            cd "$DIST"
            objcopy --only-keep-debug libtether.so libtether.so.debug
            chmod -x libtether.so.debug
            objcopy --strip-unneeded --remove-section=.comment --add-gnu-debuglink=libtether.so.debug libtether.so
            objcopy --strip-all --remove-section=.comment tether
        )
    fi
}

# A page or text as Debian wants it: compressed, without the time.
compressed() { mkdir -p "${2%/*}" && gzip -9n < "$1" > "$2"; }

# stanza NAME SECTION LINE...: the beginning of a control file.
stanza() {
    local name=$1 section=$2
    shift 2
    printf '%s\n' "Package: $name" "Version: $VERSION" "Architecture: $(dpkg --print-architecture)" \
        "Maintainer: ${MAINTAINER:-the tether authors <tether@packages.invalid>}" "Section: $section" "Priority: optional" "$@"
    [ -z "${HOMEPAGE:-}" ] || echo "Homepage: $HOMEPAGE"
}

# deb FOLDER NAME: a package of this folder, in $DIST.
deb() {
    echo "Installed-Size: $(du -k -s --exclude=DEBIAN "$1" | cut -f 1)" >> "$1/DEBIAN/control"
    (cd "$1" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | LC_ALL=C sort -z | xargs -0 md5sum > DEBIAN/md5sums)
    chmod -R u=rwX,go=rX "$1"
    [ ! -e "$1/etc/default/tether-metrics" ] || chmod 600 "$1/etc/default/tether-metrics" # it may have a password
    dpkg-deb --root-owner-group -Zxz --build "$1" "$DIST/$2_${VERSION}_$(dpkg --print-architecture).deb" >/dev/null
}

# package: as dpkg-deb wants its content, in $TMP/package.
package() {
    local to=$TMP/package doc=$TMP/package/usr/share/doc/tether shell page
    install -D -m 755 "$DIST/libtether.so" "$to/usr/lib/tether/libtether.so" # servers want it executable
    install -D -m 755 "$DIST/tether" "$to/usr/bin/tether"
    install -D -m 644 packaging/tether.conf "$to/etc/tether/tether.conf"
    install -D -m 644 packaging/tether-metrics.default "$to/etc/default/tether-metrics"
    install -D -m 644 -t "$to/lib/systemd/system" packaging/tether-metrics.service
    "$DIST/tether" man "$TMP/man"
    for page in "$TMP"/man/*.1; do compressed "$page" "$to/usr/share/man/man1/${page##*/}.gz"; done
    for shell in bash:bash-completion/completions/tether zsh:zsh/vendor-completions/_tether fish:fish/vendor_completions.d/tether.fish; do
        mkdir -p "$to/usr/share/$(dirname "${shell#*:}")"
        "$DIST/tether" completions "${shell%%:*}" > "$to/usr/share/${shell#*:}"
    done
    python3 packaging/docs.py "$doc"
    install -D -m 644 -t "$to/usr/share/tether/monitoring" packaging/monitoring/{tether.lua,prometheus.yml,alerts.yml,board.json}
    install -m 644 packaging/copyright "$doc/copyright"
    # The form that apt reads; CHANGELOG.md is beside it.
    printf 'tether (%s) unstable; urgency=medium\n\n  * See /usr/share/doc/tether/CHANGELOG.md.\n\n -- %s  %s\n' "$VERSION" \
        "${MAINTAINER:-the tether authors <tether@packages.invalid>}" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")" > "$TMP/changelog"
    compressed "$TMP/changelog" "$doc/changelog.gz"

    mkdir -p "$to/usr/share/lintian/overrides"
    echo 'tether: non-standard-file-perm 0600 != 0644 [etc/default/tether-metrics]' > "$to/usr/share/lintian/overrides/tether"

    # What the programs are linked with says which versions of the libraries are needed.
    mkdir -p "$TMP/needs/debian" "$to/DEBIAN"
    : > "$TMP/needs/debian/control"
    local needs
    needs=$(cd "$TMP/needs" && dpkg-shlibdeps -O -e"$to/usr/bin/tether" -e"$to/usr/lib/tether/libtether.so" 2>/dev/null |
        sed -n 's/^shlibs:Depends=//p')
    (cd "$to" && find etc -type f -printf '/%p\n' | LC_ALL=C sort) > "$to/DEBIAN/conffiles"
    install -m 755 -t "$to/DEBIAN" packaging/{prerm,postinst,postrm}
    install -m 644 packaging/triggers "$to/DEBIAN/triggers"
    stanza tether database "Depends: $needs" "Suggests: redis-server (>= 5:7.0) | valkey-server" > "$to/DEBIAN/control"
    cat >> "$to/DEBIAN/control" <<END
Description: locks in Redis and Valkey that end with their holder
 A module for Redis 7.0 and later and Valkey: locks and temporary keys that live
 as long as the connection that made them, so that no time limit has to be
 guessed. Fair queues, fencing tokens, readers and writers, semaphores.
 .
 The command line runs programs while they hold a lock, and shows who holds
 what.
END
    deb "$to" tether
    [ ! -e "$DIST/libtether.so.debug" ] || package_of_symbols
}

# The module's debug information, where gdb looks for that of its build id.
package_of_symbols() {
    local to=$TMP/symbols id
    id=$(readelf -n "$DIST/libtether.so" | sed -n 's/.*Build ID: //p')
    [ -n "$id" ] || { say "the module has no build id, so no tether-dbgsym is made"; return; }
    install -D -m 644 "$DIST/libtether.so.debug" "$to/usr/lib/debug/.build-id/${id:0:2}/${id:2}.debug"
    mkdir -p "$to/usr/share/doc" "$to/DEBIAN"
    ln -s tether "$to/usr/share/doc/tether-dbgsym"
    stanza tether-dbgsym debug "Depends: tether (= $VERSION)" "Auto-Built-Package: debug-symbols" "Build-Ids: $id" \
        "Description: debug symbols for tether" > "$to/DEBIAN/control"
    deb "$to" tether-dbgsym
}

# The files and scripts of the .deb, after `package`, for systems with rpm. rpm itself finds which libraries are needed.
package_of_rpm() {
    local to=$TMP/rpm
    mkdir -p "$to/usr/lib"
    cp -a "$TMP"/package/{etc,usr} "$to"
    cp -a "$TMP/package/lib/systemd" "$to/usr/lib"
    mv "$to/usr/share/zsh/vendor-completions" "$to/usr/share/zsh/site-functions"
    rm "$to/usr/share/doc/tether/changelog.gz"
    {
        printf '%s\n' "Name: tether" "Version: ${VERSION/-/\~}" "Release: 1" "Summary: Locks in Redis and Valkey that end with their holder" \
            "License: MIT" ${HOMEPAGE:+"URL: $HOMEPAGE"} "%description" "A module for Redis 7.0 and later and Valkey, and its command line." \
            "%install" "cp -a $to/. %{buildroot}"
        # rpm calls them with the number of versions that are left: 0 where Debian says remove.
        printf '%s\n' "%post" "set -- configure" "$(cat packaging/postinst)" \
            "%preun" '[ "$1" = 0 ] || exit 0' "set -- remove" "$(cat packaging/prerm)" \
            "%postun" '[ "$1" = 0 ] || exit 0' "set -- remove" "$(cat packaging/postrm)" |
            sed 's/deb-systemd-invoke restart/systemctl try-restart/; s/deb-systemd-invoke/systemctl/'
        echo "%files"
        (cd "$to" && find . ! -type d -printf '/%P\n' -o -path '*/tether*' -printf '%%dir /%P\n' | LC_ALL=C sort | sed 's#^/etc/#%config(noreplace) &#')
    } > "$TMP/tether.spec"
    rpmbuild -bb --quiet --define "_rpmdir $DIST" --define "_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm" \
        --define "_topdir $TMP/rpmbuild" --define "debug_package %{nil}" --define "__os_install_post %{nil}" --define "_build_id_links none" \
        --define "use_source_date_epoch_as_buildtime 1" --define "clamp_mtime_to_source_date_epoch 1" "$TMP/tether.spec"
    mkdir "$TMP/of-rpm"
    rpm2cpio "$DIST"/tether-*.rpm | (cd "$TMP/of-rpm" && cpio -idm --quiet)
    diff -r "$to" "$TMP/of-rpm" || die "the .rpm has other files"
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
        ! grep -q '^warn' "$TMP/doctor" || { cat "$TMP/doctor" >&2; die "tether doctor warns of the package's own configuration"; }
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

# advised MODULE SETTINGS: the lines that tether.conf wants in the server's file.
advised() {
    sed -n "s|^#   \(loadmodule\) .*|\1 \"$1\"|p; s|^#   \(include\) .*|\1 \"$2\"|p; s|^#   \(client-output-buffer-limit .*\)|\1|p" packaging/tether.conf
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
    cp "$DIST"/tether_*.deb "$root/tmp/"
    printf '#!/bin/sh\nexit 101\n' > "$root/usr/sbin/policy-rc.d" # no service is started in there
    chmod 755 "$root/usr/sbin/policy-rc.d"
    mount -t proc proc "$root/proc"
    within=(chroot "$root" env -i LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin)
    say "apt install ./${DIST##*/}/*.deb redis-server, in a new Debian"
    { within apt-get -qq update && within sh -c 'apt-get -qq -y install --no-install-recommends /tmp/*.deb redis-server'; } > "$TMP/log" 2>&1 ||
        { tail -n 30 "$TMP/log" >&2; die "apt could not install it"; }
    advised /usr/lib/tether/libtether.so /etc/tether/tether.conf >> "$root/etc/redis/redis.conf"
    try tether "${started[@]}"
    for file in usr/share/man/man1/tether-run.1.gz usr/share/bash-completion/completions/tether etc/tether/tether.conf usr/share/doc/tether/docs/commands.md lib/systemd/system/tether-metrics.service; do
        [ -s "$root/$file" ] || die "$file is missing"
    done
    within dpkg --verify tether || die "its files are not as the package says"
    # A server that needs it would not start again.
    ! within apt-get -qq -y purge tether > "$TMP/log" 2>&1 || die "it is removed although a server loads it"
    grep -q '^/etc/redis/redis.conf:[0-9]*:loadmodule' "$TMP/log" || { cat "$TMP/log" >&2; die "it does not say which server loads it"; }
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

# systemd only warns of a setting that it does not know, and does not say by its exit code which unit is wrong. Where it does not warn
# of such a setting, it cannot work here: in a container, say.
check_service() {
    local unit=$TMP/tether-metrics.service said
    sed "s#^ExecStart=#&$1#" packaging/tether-metrics.service > "$unit"
    said=$(systemd-analyze verify --man=no "$unit" 2>&1 | grep tether-metrics.service) || true
    [ -z "$said" ] || die "$said"
    sed -i 's/^\[Service\]$/&\nNoSuchSetting=1/' "$unit"
    said=$(systemd-analyze verify --man=no "$unit" 2>&1) || true
    [[ $said == *tether-metrics.service*NoSuchSetting* ]] || say "tether-metrics.service was NOT checked, since systemd-analyze cannot work here: $said"
}

scripts/need.sh server python
[ "$(uname -s)" != Linux ] || scripts/need.sh objcopy
build
unpacked=$TMP/unpacked
if command -v dpkg-deb >/dev/null; then
    scripts/need.sh dpkg-shlibdeps lintian systemd-analyze rpmbuild cpio
    package
    package_of_rpm
    lintian --allow-root --fail-on error,warning "$DIST"/*.deb
    dpkg-deb -x "$DIST"/tether_*.deb "$unpacked"
    check_service "$unpacked"
    advised "$unpacked/usr/lib/tether/libtether.so" "$unpacked/etc/tether/tether.conf" > "$TMP/server.conf"
    try "$unpacked/usr/bin/tether" "$(scripts/need.sh --server-path)" "$TMP/server.conf"
else
    say "no dpkg-deb is here, so no .deb is made"
    advised "$DIST/libtether.so" "$PWD/packaging/tether.conf" > "$TMP/server.conf"
    try "$DIST/tether" "$(scripts/need.sh --server-path)" "$TMP/server.conf"
fi
python3 scripts/sbom.py > "$DIST/tether.spdx.json"
(cd "$DIST" && sha256sum -- * > "$TMP/sums" && mv "$TMP/sums" SHA256SUMS)
(cd "$DIST" && ls -l)
[ "${1:-}" != --root ] || try_in_new_root
