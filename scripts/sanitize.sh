#!/usr/bin/env bash
# The tests on servers in which AddressSanitizer looks at each access of the module's to memory, against a module that also looks
# after itself (numbers that run over, calls while something is lent).
#
#   scripts/sanitize.sh [SUITE...]   these of tests/, unless given: locks server sessions
#
# SERVERS names others than Redis 7.0 and Valkey 9.1: those that take their memory, and so the module's, by plain malloc, which is
# the sanitizer's then. FILTER=word runs only tests of such names. Reports stay in target/sanitize/reports/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'sanitize: %s\n' "$*" >&2; }

suites=("$@")
[ $# -gt 0 ] || suites=(locks server sessions)
names=${SERVERS:-redis-7.0 valkey-9.1}

scripts/need.sh cargo cc libclang
# The stable compiler can do it too, if it is told that one knows what one does. The C shim is compiled likewise, and the
# runtime is that of the C compiler: a library of its own, which is put into the server before anything else.
runtime=$(readlink -f "$(cc -print-file-name=libasan.so)")
[ -e "$runtime" ] || { say "cc has no libasan.so"; exit 1; }
triple=$(rustc -vV | sed -n 's/^host: //p')
RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=target/sanitize RUSTFLAGS="-Zsanitizer=address -Cforce-frame-pointers=yes" \
    CFLAGS="-fsanitize=address -fno-omit-frame-pointer" cargo build --lib --target "$triple"
export TETHER_MODULE=$PWD/target/sanitize/$triple/debug/libtether.so
# All takes several times as long.
export TETHER_PATIENCE=90
# For a program of the tests that loads the module as a server does.
export TETHER_PRELOAD=$runtime ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0
# Valkey loads modules so that they find their own names first, which the runtime does not bear. Put in place whole, as is all that
# another run of this may use at the same time.
new=$(mktemp -d target/sanitize/new.XXXXXX)
trap 'rm -rf "$new"' EXIT
cc -shared -fPIC -o "$new/dlopen.so" -xc - <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
void *dlopen(const char *file, int flags) {
    void *(*next)(const char *, int) = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
    return next(file, flags & ~RTLD_DEEPBIND);
}
END

mv -f "$new/dlopen.so" target/sanitize/dlopen.so

# server NAME: puts a server with the runtime into target/sanitize/NAME/, laid out as scripts/servers.sh does: tests copy it. It
# reports into the folder SANITIZE_REPORTS.
server() {
    local from=$PWD/.servers/$1 to=$PWD/target/sanitize/$1 program options
    program=$from/bin/redis-server
    [ -e "$program" ] || program=$from/redis-server
    mkdir -p "$to/bin"
    ln -sfnT "$program" "$to/bin/redis-server"
    ln -sfnT "$from/lib" "$to/lib"
    # What a server keeps to its end is no leak. It reports itself where it is told to crash.
    options="log_path='\$SANITIZE_REPORTS/report':verify_asan_link_order=0:detect_leaks=0:handle_segv=0:handle_abort=0:allocator_may_return_null=1"
    cat > "$new/redis-server" <<END
#!/usr/bin/env bash
here=\$(cd "\$(dirname "\${BASH_SOURCE[0]}")" && pwd)
export LD_PRELOAD="$PWD/target/sanitize/dlopen.so $runtime" ASAN_OPTIONS="$options"
LD_LIBRARY_PATH="\$here/lib" exec -a "\$here/redis-server" "\$here/bin/redis-server" "\$@"
END
    chmod +x "$new/redis-server"
    mv -f "$new/redis-server" "$to/redis-server"
}

# shellcheck disable=SC2086 # a list of words
scripts/servers.sh $names
failed=()
for name in $names; do
    SANITIZE_REPORTS=$PWD/target/sanitize/reports/$(IFS=-; echo "$name-${suites[*]}")
    TETHER_SERVER=$PWD/target/sanitize/$name/redis-server
    export SANITIZE_REPORTS TETHER_SERVER
    rm -rf "$SANITIZE_REPORTS"
    mkdir -p "$SANITIZE_REPORTS"
    server "$name"
    if ! LD_BIND_NOW=1 LD_DEBUG=bindings "$TETHER_SERVER" --version 2>&1 | grep "/redis-server .* to $runtime .*symbol .malloc'" >/dev/null; then
        say "$name takes its memory from elsewhere: nothing would be seen"
        failed+=("$name")
        continue
    fi
    say "$name: ${suites[*]}"
    # How long others wait while a million keys go is measured of a build without sanitizers: with them it is 20 ms or some more.
    # shellcheck disable=SC2086 # a list of words
    cargo test --no-fail-fast "${suites[@]/#/--test=}" -- --skip a_million_keys_go_without_holding_up_anyone ${FILTER:-} ||
        failed+=("$name")
    for report in "$SANITIZE_REPORTS"/*; do
        [ -e "$report" ] || continue
        say "the sanitizer has found something:"
        cat "$report" >&2
        failed+=("$report")
    done
done
[ ${#failed[@]} -eq 0 ] || { say "FAILED: ${failed[*]}"; exit 1; }
