#!/usr/bin/env bash
# Sees to it that what a task needs is on this machine, installing what is missing with apt-get or brew:
#
#   scripts/need.sh cargo cc libclang        to build the module
#   scripts/need.sh server redis-cli         to run it: redis-server or valkey-server
#   scripts/need.sh python ip hiredis        to test it: venv, network namespaces, the C client's library,
#   scripts/need.sh node npm                 and Node.js with its package manager
#   scripts/need.sh node-20                  Node.js 20 or later, for its client
#   scripts/need.sh pip                      pip, to download a source
#   scripts/need.sh go                       Go, for its client
#   scripts/need.sh java mvn                 a JDK of 17 or later, and Maven, for the Java client
#   scripts/need.sh tclsh                    to run the servers' own tests
#   scripts/need.sh c++                      to fuzz it
#   scripts/need.sh valgrind                 to count instructions
#   scripts/need.sh llvm-profdata            to record how the module's code is used
#   scripts/need.sh objcopy dpkg-shlibdeps lintian systemd-analyze rpmbuild cpio debootstrap   to make a release, and to try its package in a new Debian
#   scripts/need.sh codespell                to check the spelling
#   scripts/need.sh jansson libevent libev libuv clang clang-format   to test the C client
#   scripts/need.sh prometheus prometheus-redis-exporter to check the alerts; never started as services
#   scripts/need.sh postgresql etcd zookeeper   to measure against other locks; never started as services
#   scripts/need.sh openssl                  to make certificates for tests
#   scripts/need.sh --server-path            prints the server that `make run` and `make test` use
#   scripts/need.sh --llvm-profdata          prints which one there is
#   scripts/need.sh --target                 prints the folder that cargo builds in: CARGO_TARGET_DIR may name another than target
#
# It installs nothing that is there already, and says what to do by hand where it can do nothing.
set -euo pipefail

say() { printf 'need: %s\n' "$*" >&2; }

# ---- is it there? ---------------------------------------------------------------------------------------------

# Where cargo builds, as it says itself; without cargo, where it would.
target() {
    local root
    root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
    if command -v cargo >/dev/null; then
        cargo metadata --manifest-path "$root/Cargo.toml" --format-version 1 --no-deps |
            sed 's/.*"target_directory":"\([^"]*\)".*/\1/'
    else
        echo "$root/target"
    fi
}

# The first server on PATH that the module can be loaded into: Redis 7.0 or later; every Valkey.
server_path() {
    local program version
    for program in redis-server valkey-server; do
        command -v "$program" >/dev/null || continue
        version=$("$program" --version | sed -n 's/.* v=\([0-9]*\).*/\1/p')
        if [ "${version:-0}" -ge 7 ]; then
            command -v "$program"
            return
        fi
        say "$(command -v "$program") is too old: Redis 7.0 or Valkey 7.2 is the least"
    done
    return 1
}

# The toolchain's own, where it has that component; else LLVM's, which knows the compiler's format from its version 19 on.
profdata_path() {
    local file
    for file in "${LLVM_PROFDATA:-/nowhere}" "$(rustc --print sysroot)"/lib/rustlib/*/bin/llvm-profdata \
        /usr/lib/llvm-{30..19}/bin/llvm-profdata {/opt/homebrew,/usr/local}/opt/llvm/bin/llvm-profdata; do
        if [ -x "$file" ]; then
            echo "$file"
            return
        fi
    done
    return 1
}

any() { local file; for file in "$@"; do [ -e "$file" ] && return; done; return 1; }

# The library, and the headers that belong to it (the compiler's own, stddef.h and such): bindgen reads both.
has_libclang() {
    [ "$(uname -s)" = Darwin ] && any "${LIBCLANG_PATH:-/nowhere}"/libclang.dylib \
        /Library/Developer/CommandLineTools/usr/lib/libclang.dylib /Applications/Xcode.app/Contents/Developer/Toolchains/*/usr/lib/libclang.dylib \
        /opt/homebrew/opt/llvm/lib/libclang.dylib /usr/local/opt/llvm/lib/libclang.dylib && return
    any "${LIBCLANG_PATH:-/nowhere}"/libclang*.so* /usr/lib/llvm*/lib/libclang{,-[0-9]*}.so* /usr/lib{,64,/*-linux-*}/libclang{,-[0-9]*}.so* &&
        any /usr/lib{,64}/llvm*/lib/clang/*/include/stddef.h /usr/lib{,64}/clang/*/include/stddef.h
}

has() {
    case $1 in
        cc) command -v cc >/dev/null && { [ "$(uname -s)" = Darwin ] || [ -e /usr/include/stdio.h ]; } ;;
        libclang) has_libclang ;;
        server) server_path >/dev/null ;;
        python) python3 -c 'import ensurepip, venv' 2>/dev/null ;;
        pip) python3 -m pip --version >/dev/null 2>&1 ;;
        ip) command -v ip >/dev/null || any /sbin/ip /usr/sbin/ip ;;
        node) node -e 'process.exit(parseInt(process.versions.node) < 18 ? 1 : 0)' 2>/dev/null ;;
        node-20) node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' 2>/dev/null ;;
        go) go version 2>/dev/null | grep -qE 'go1\.(2[4-9]|[3-9][0-9])' ;;
        java) javac -version 2>&1 | grep -qE 'javac (1[7-9]|[2-9][0-9])' ;;
        postgresql) any /usr/lib/postgresql/*/bin/postgres || { command -v postgres && command -v initdb; } >/dev/null ;;
        zookeeper) command -v java >/dev/null && any /usr/share/java/zookeeper.jar ;;
        llvm-profdata) profdata_path >/dev/null ;;
        hiredis) any /usr/include/hiredis/hiredis.h /opt/homebrew/include/hiredis/hiredis.h /usr/local/include/hiredis/hiredis.h ;;
        jansson) has_header jansson.h ;;
        libevent) has_header event2/event.h ;;
        libev) has_header ev.h ;;
        libuv) has_header uv.h ;;
        *) command -v "$1" >/dev/null ;;
    esac
}

has_header() { any /usr/include/"$1" /usr/include/*-linux-*/"$1" /opt/homebrew/include/"$1" /usr/local/include/"$1"; }

# ---- which package is it? -------------------------------------------------------------------------------------

apt_package() {
    case $1 in
        cc) echo gcc libc6-dev ;;
        c++) echo g++ ;;
        libclang) echo libclang-dev ;;
        server) apt_server ;;
        redis-cli) echo redis-tools ;;
        python) echo python3 python3-venv ;;
        pip) echo python3-pip ;;
        ip) echo iproute2 ;;
        hiredis) echo libhiredis-dev ;;
        jansson) echo libjansson-dev ;;
        libevent | libev) echo "$1-dev" ;;
        libuv) echo libuv1-dev ;;
        clang | clang-format) echo "$1" ;;
        objcopy) echo binutils ;;
        dpkg-shlibdeps) echo dpkg-dev ;;
        rpmbuild) echo rpm ;;
        systemd-analyze) echo systemd ;;
        debootstrap | lintian | codespell | cpio) echo "$1" ;;
        node) echo nodejs ;;
        node-20) apt_node ;;
        go) apt_go ;;
        npm) echo npm ;;
        java) echo default-jdk-headless ;;
        mvn) echo maven ;;
        tclsh) echo tcl ;;
        valgrind) echo valgrind ;;
        llvm-profdata) echo llvm-19 ;;
        postgresql) echo postgresql ;;
        prometheus | prometheus-redis-exporter) echo "$1" ;;
        etcd) echo etcd-server ;;
        zookeeper) echo zookeeper default-jre-headless ;;
        openssl) echo openssl ;;
    esac
}

# Old releases still have a Redis 6 only.
apt_server() {
    local package version
    for package in redis-server valkey-server; do
        version=$(LC_ALL=C apt-cache policy "$package" | sed -n 's/.*Candidate: \([0-9]*:\)\{0,1\}\([0-9]*\)\..*/\2/p')
        if [ "${version:-0}" -ge 7 ]; then echo "$package"; return; fi
    done
}

# Old releases have a Node.js and a Go that are too old for the clients.
apt_node() {
    LC_ALL=C apt-cache policy nodejs | grep -qE 'Candidate: ([0-9]+:)?[2-9][0-9]\.' && echo nodejs
}
apt_go() {
    LC_ALL=C apt-cache policy golang-go | grep -qE 'Candidate: .*1\.(2[4-9]|[3-9][0-9])' && echo golang-go
}

brew_package() {
    case $1 in
        libclang | llvm-profdata) echo llvm ;;
        server | redis-cli) echo redis ;;
        python | pip) echo python3 ;;
        hiredis | openssl | jansson | libevent | libev | libuv | clang-format | codespell) echo "$1" ;;
        clang) echo llvm ;;
        node | node-20 | npm) echo node ;;
        go) echo go ;;
        java) echo openjdk ;;
        mvn) echo maven ;;
        tclsh) echo tcl-tk ;;
        postgresql) echo postgresql ;;
        etcd) echo etcd ;;
    esac
}

by_hand() {
    case $1 in
        cargo) echo "Rust's cargo: install Rust with rustup" ;;
        cc) echo "a C compiler: the package gcc or clang (macOS: xcode-select --install)" ;;
        libclang) echo "libclang: the package libclang-dev, clang-devel or clang; or set LIBCLANG_PATH to the folder of libclang" ;;
        server) echo "a server: Redis 7.0 or Valkey 7.2, or later, as redis-server or valkey-server on PATH (on Linux
        scripts/servers.sh valkey-9.1 fetches one without installing it: make run SERVER=.servers/valkey-9.1/redis-server)" ;;
        redis-cli) echo "redis-cli: the package redis-tools or redis" ;;
        python) echo "Python 3 with venv: the packages python3 and python3-venv" ;;
        node | npm) echo "Node.js 18 or later with npm: the packages nodejs and npm" ;;
        node-20) echo "Node.js 20 or later, as node on PATH: the package nodejs where it is as new (from Debian 13 on), else from the Node.js project" ;;
        go) echo "Go 1.24 or later, as go on PATH: the package golang-go where it is as new, else from the Go project" ;;
        java) echo "a JDK of 17 or later, as javac on PATH: the package default-jdk-headless" ;;
        mvn) echo "Maven 3.8 or later: the package maven" ;;
        llvm-profdata) echo "llvm-profdata: rustup component add llvm-tools, or LLVM 19 or later; or set LLVM_PROFDATA to it" ;;
        ip) echo "ip: the package iproute2 (Linux only)" ;;
        *) echo "$1: the package $(apt_package "$1")" ;;
    esac
}

# ---- installing -----------------------------------------------------------------------------------------------

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

# Debian starts and enables a service with its server package. Nobody asked for one here, and it would sit on port 6379.
POLICY=/usr/sbin/policy-rc.d
without_services() {
    if [ ! -e "$POLICY" ]; then
        printf '#!/bin/sh\nexit 101\n' | as_root tee "$POLICY" >/dev/null
        trap 'as_root rm -f "$POLICY"' EXIT
        as_root chmod 755 "$POLICY"
    fi
    "$@"
}

install_with_apt() {
    say "apt-get install $*"
    local package output
    output=$(without_services as_root env DEBIAN_FRONTEND=noninteractive apt-get -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120 \
        -o Dpkg::Use-Pty=0 install -qq -y --no-install-recommends "$@" 2>&1 </dev/null) || { printf '%s\n' "$output" >&2; return 1; }
    for package in redis-server valkey-server postgresql etcd-server prometheus prometheus-redis-exporter; do
        [[ " $* " != *" $package "* ]] || as_root update-rc.d "${package/etcd-server/etcd}" disable >/dev/null 2>&1 || true
    done
}

case ${1:-} in
    --server-path) server_path; exit ;;
    --target) target; exit ;;
    --llvm-profdata) profdata_path; exit ;;
esac

find_missing() {
    local what
    missing=()
    for what in "$@"; do has "$what" || missing+=("$what"); done
}
find_missing "$@"
[ ${#missing[@]} -gt 0 ] || exit 0
if command -v flock >/dev/null; then
    exec 9> "${TMPDIR:-/tmp}/tether-need.$UID.lock" # two at a time would stand in each other's way
    flock 9
    find_missing "$@"
    [ ${#missing[@]} -gt 0 ] || exit 0
fi

packages=()
if command -v apt-get >/dev/null && { [ "$(id -u)" = 0 ] || command -v sudo >/dev/null; }; then
    as_root apt-get -qq -o Acquire::Retries=3 update >&2 || say "apt-get update failed; going on with the lists that are there"
    for what in "${missing[@]}"; do for package in $(apt_package "$what"); do packages+=("$package"); done; done
    [ ${#packages[@]} -eq 0 ] || install_with_apt "${packages[@]}" || say "apt-get could not install ${packages[*]}"
elif command -v brew >/dev/null; then
    for what in "${missing[@]}"; do for package in $(brew_package "$what"); do packages+=("$package"); done; done
    [ ${#packages[@]} -eq 0 ] || { say "brew install ${packages[*]}" && brew install "${packages[@]}" >&2; } || say "brew could not install ${packages[*]}"
fi

failed=0
for what in "${missing[@]}"; do
    has "$what" && continue
    [ $failed = 1 ] || say "this must be installed by hand, since neither apt-get (as root or with sudo) nor brew could do it:"
    failed=1
    say "  - $(by_hand "$what")"
done
exit $failed
