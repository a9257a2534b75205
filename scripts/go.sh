#!/usr/bin/env bash
# The Go client of clients/go:
#
#   scripts/go.sh [GO-TEST..]     its tests, with the race detector; among them the vectors of clients/protocol
#                                 (TETHER_SERVER, TETHER_MODULE, TETHER_PROGRAM: the program tether; TETHER_STEPS cancelled
#                                 acquires, TETHER_FAULTS of the wire)
#   scripts/go.sh --vectors       of these only the vectors, which need no server
#   scripts/go.sh --lint          gofmt, go vet, staticcheck
#   scripts/go.sh --conform [..]  clients/protocol/conform with its adapter; 300 faults: TETHER_FAULTS=300 scripts/go.sh --conform --only faults
#   scripts/go.sh --pack          the modules as Go's proxy would serve them, and a program that gets them from there
#
# Modules come from Go's module proxy. The last line of a run is in cargo's form, which .ci/run sums.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

ROOT=$PWD
export GOFLAGS="${GOFLAGS:-} -buildvcs=false"

scripts/need.sh go cc
case ${1:-} in
    --vectors | --lint | --pack) ;;
    # shellcheck source=scripts/tested.sh
    *) . scripts/tested.sh ;;
esac
cd clients/go

modules=(. gocron) packages=./...
case ${1:-} in
    --vectors)
        shift
        set -- -run '^TestVectors$' "$@"
        modules=(.) packages=./internal/core
        ;;
    --lint)
        unformatted=$(gofmt -l .)
        [ -z "$unformatted" ] || { printf 'go: gofmt would change: %s\n' "$unformatted" >&2; exit 1; }
        for module in . gocron; do
            (cd $module && go vet ./... && go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...)
        done
        exit
        ;;
    --conform)
        shift
        mkdir -p "$ROOT/target/go"
        go build -o "$ROOT/target/go/conform" ./internal/conform
        exec python3 -B ../protocol/conform/conform.py --server "$TETHER_SERVER" --module "$TETHER_MODULE" "$@" -- "$ROOT/target/go/conform"
        ;;
    --pack)
        # What is published has a path with a host in it, which nobody has chosen yet.
        path=example.org/tether at=$(mktemp -d)
        version=v$(sed -n 's/^version = "\(.*\)"$/\1/p' "$ROOT/Cargo.toml" | head -n 1)
        trap 'chmod -R u+w "$at"; rm -rf "$at"' EXIT
        mkdir "$at/user"
        for part in "" /gocron; do
            proxy=$at/proxy/$path$part/@v module=$at/$path$part@$version
            mkdir -p "$proxy" "$module"
            (cd ".$part" && git ls-files -z . ':!gocron' | xargs -0 cp --parents -t "$module")
            sed -i "/^replace /d; s#\\btether\\b#$path#" "$module/go.mod"
            find "$module" -name '*.go' -exec sed -i "s#\"tether/#\"$path/#; s#^\t\"tether\"\$#\ttether \"$path\"#" {} +
            cp "$module/go.mod" "$proxy/$version.mod"
            echo "{\"Version\": \"$version\"}" > "$proxy/$version.info"
            (cd "$at" && find "$path$part@$version" -type f | python3 -c '
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w", zipfile.ZIP_DEFLATED) as file:
    for name in sys.stdin.read().split("\n")[:-1]:
        file.write(name)' "$proxy/$version.zip")
        done
        printf 'package main\n\nimport (\n\t"fmt"\n\n\ttether "%s"\n\t_ "%s/gocron"\n)\n\nfunc main() { fmt.Println(tether.Open("redis://localhost:6379", nil)) }\n' \
            $path $path > "$at/user/main.go"
        cd "$at/user"
        export GOFLAGS=-modcacherw GOPROXY="file://$at/proxy,$(go env GOPROXY)" GONOSUMDB=example.org GOMODCACHE=$at/cache
        go mod init user
        go get $path@$version $path/gocron@$version
        go vet .
        go list -m all
        exit
        ;;
esac

output=$(mktemp)
trap 'rm -f "$output"' EXIT
status=0
for module in "${modules[@]}"; do
    (cd $module && go test -race -count=1 -v "$@" "$packages") >>"$output" 2>&1 || status=$?
done
grep -vE '^ *(=== |--- (PASS|SKIP))' "$output" || true
count() { grep -cE "^ *--- $1" "$output" || true; }
[ $status = 0 ] && word=ok || word=FAILED
echo "test result: $word. $(count PASS) passed; $(count FAIL) failed; $(count SKIP) ignored"
exit $status
