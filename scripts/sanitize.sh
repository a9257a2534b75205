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
# Valkey loads modules so that they find their own names first, which the runtime does not bear.
cc -shared -fPIC -o target/sanitize/dlopen.so -xc - <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
void *dlopen(const char *file, int flags) {
    void *(*next)(const char *, int) = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
    return next(file, flags & ~RTLD_DEEPBIND);
}
END

# shellcheck disable=SC2086 # a list of words
scripts/servers.sh $names
reports=$PWD/target/sanitize/reports
rm -rf "$reports"
mkdir -p "$reports"
failed=()
for name in $names; do
    wrapped=$PWD/target/sanitize/$name
    # What a server keeps to its end is no leak. It reports itself where it is told to crash.
    options="log_path='$reports/$name':verify_asan_link_order=0:detect_leaks=0:handle_segv=0:handle_abort=0:allocator_may_return_null=1"
    printf '#!/usr/bin/env bash\nexport LD_PRELOAD="%s" ASAN_OPTIONS="%s"\nexec "%s" "$@"\n' \
        "$PWD/target/sanitize/dlopen.so $runtime" "$options" "$PWD/.servers/$name/redis-server" > "$wrapped"
    chmod +x "$wrapped"
    if ! LD_BIND_NOW=1 LD_DEBUG=bindings "$wrapped" --version 2>&1 | grep "/redis-server .* to $runtime .*symbol .malloc'" >/dev/null; then
        say "$name takes its memory from elsewhere: nothing would be seen"
        failed+=("$name")
        continue
    fi
    export TETHER_SERVER=$wrapped
    say "$name: ${suites[*]}"
    # How long others wait while a million keys go is measured of a build without sanitizers: with them it is 20 ms or some more.
    # shellcheck disable=SC2086 # a list of words
    cargo test --no-fail-fast "${suites[@]/#/--test=}" -- --skip a_million_keys_go_without_holding_up_anyone ${FILTER:-} ||
        failed+=("$name")
done
for report in "$reports"/*; do
    [ -e "$report" ] || continue
    say "the sanitizer has found something:"
    cat "$report" >&2
    failed+=("$report")
done
[ ${#failed[@]} -eq 0 ] || { say "FAILED: ${failed[*]}"; exit 1; }
