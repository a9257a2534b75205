#!/usr/bin/env bash
# A release: scripts/release.sh VERSION [STEP..], all steps unless some are named:
#
#   versions    writes VERSION into each file that has one, and today's date into CHANGELOG.md. Commit that, and tag it vVERSION
#   artefacts   of what is committed: scripts/dist.sh, into target/release-VERSION/, with what the changelog says as NOTES.md
#   registries  what each registry would get, without sending it: crates.io, PyPI, npm, Maven Central, Go's proxy, and the C files; with
#               their checksums beside the others
#
# Nothing is published. HOMEPAGE and MAINTAINER are for the packages, PROFILE=1 as for scripts/dist.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

VERSION=$1
shift
TO=$PWD/target/release-$VERSION

say() { printf 'release: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

[[ $VERSION =~ ^[0-9]+\.[0-9]+\.[0-9]+(-[a-z0-9.]+)?$ ]] || die "$VERSION is no version such as 1.2.3"
former=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)

# Where the version stands. A page that shows it is among them.
files() {
    git ls-files Cargo.toml clients/python/pyproject.toml clients/node/package.json clients/node/package-lock.json \
        'clients/java/*pom.xml' 'clients/go/*go.mod' 'clients/*README.md' 'clients/protocol/conform/adapters/*' \
        'clients/java/conform/src/*Adapter.java' clients/protocol/conform/README.md clients/c/tether.h
}

versions() {
    local file head
    if [ "$former" != "$VERSION" ]; then
        # No number of another package is the same: a release that would hit one is stopped by its lock file.
        for file in $(files); do sed -i.former -E "s/\b(v?)${former//./\\.}\b/\1$VERSION/g" "$file" && rm "$file.former"; done
        cargo update --quiet --workspace --offline
        (cd fuzz && cargo update --quiet --workspace --offline)
    fi
    head="## $VERSION ($(date -u +%F))"
    if ! grep -qE "^## $VERSION \([0-9-]+\)$" CHANGELOG.md; then
        grep -qE "^## $VERSION \(unreleased\)$" CHANGELOG.md || die "CHANGELOG.md has no heading '## $VERSION (unreleased)'"
        sed -i.former "s/^## $VERSION (unreleased)$/$head/" CHANGELOG.md && rm CHANGELOG.md.former
    fi
    [ -d "tests/server/formats/golden/$VERSION" ] || die "there are no golden files of $VERSION: tests/server/formats/golden.rs says how to make them"
    say "commit this, if anything has changed, and tag it v$VERSION"
}

artefacts() {
    git diff --quiet HEAD || die "commit first: LOCK.SERVER and tether --version say of which commit they are"
    [ "$former" = "$VERSION" ] || die "Cargo.toml has $former: scripts/release.sh $VERSION versions"
    scripts/dist.sh
    mkdir -p "$TO"
    cp target/dist/* "$TO"
    awk -v head="^## ${VERSION//./\\\\.} " '$0 ~ head { on = 1; next } /^## / { on = 0 } on' CHANGELOG.md > "$TO/NOTES.md"
    [ -s "$TO/NOTES.md" ] || die "CHANGELOG.md says nothing of $VERSION"
    sums
}

sums() { (cd "$TO" && rm -f SHA256SUMS && find . -maxdepth 1 -type f ! -name SHA256SUMS -printf '%P\n' | LC_ALL=C sort | xargs sha256sum > SHA256SUMS); }

registries() {
    mkdir -p "$TO"
    say "crates.io: cargo publish --dry-run"
    cargo publish --quiet --dry-run --allow-dirty --package tether-client
    cargo package --quiet --no-verify --allow-dirty --package tether-client
    cp "$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/package/tether-client-$VERSION.crate" "$TO"
    say "PyPI: python -m build, twine check"
    scripts/python.sh --pack
    cp target/python/dist/* "$TO"
    say "npm: npm publish --dry-run"
    scripts/node.sh --pack
    (cd clients/node && npm pack --silent --pack-destination "$TO")
    say "Maven Central: mvn deploy, into a folder, with sources and javadoc"
    scripts/java.sh --publish
    find target/java/published -name "tether-*-$VERSION*.jar" ! -name '*-tests.jar' -exec cp {} "$TO" \;
    say "Go's proxy: the modules are published by the tags clients/go/v$VERSION and clients/go/gocron/v$VERSION"
    scripts/need.sh go
    scripts/go.sh --pack
    say "C: two files and the licence"
    tar -czf "$TO/tether-c-$VERSION.tar.gz" --owner=0 --group=0 --numeric-owner --mtime="@$(git log -1 --format=%ct)" \
        LICENSE -C clients/c tether.c tether.h README.md examples
    sums
    (cd "$TO" && ls -l)
}

[ $# -gt 0 ] || set -- versions artefacts registries
for step in "$@"; do
    case $step in
        versions | artefacts | registries) "$step" ;;
        *) die "no such step: $step" ;;
    esac
done
