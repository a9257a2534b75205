# shellcheck shell=bash
# The slices of `make nightly`, each of at most eight minutes on two cores. scripts/nightly.sh reads this, and says what `slice`
# takes.

MATRIX="redis-7.0 redis-7.2 redis-7.4 redis-8.0 redis-8.2 redis-8.6 valkey-8.0 valkey-8.1 valkey-9.1"
MODULE="src/* build.rs build/* Cargo.* scripts/test.sh scripts/within.sh scripts/servers.sh"
SUITES="tests/server/* tests/locks/* tests/sessions/* tests/failover/* tests/cluster/* tests/history/* tests/support/*"
CLIENTS="clients/rust/* clients/cli/* clients/devserver/*"
SIMULATION="src/engine/* src/policy/* tests/simulation/* tests/support/src/model/*"

# long STEPS TEST NAME: one of the long tests, with so many steps.
long() { echo "TETHER_STEPS=$1 scripts/test.sh --soak --test $2 $3"; }
# long_client STEPS NAME: the same of the Rust client's.
long_client() { echo "TETHER_STEPS=$1 scripts/test.sh --soak-clients $2"; }

for server in $MATRIX; do
    slice "suites-$server" 280 "$MODULE $SUITES" make test-servers SERVERS="$server"
done
for server in redis-8.6 valkey-9.1; do
    slice "threads-$server!" 280 "$MODULE $SUITES" env TETHER_CONFIG="'io-threads 4'" make test-servers SERVERS="$server"
done
for server in $MATRIX; do
    slice "storm-$server" 240 "$MODULE tests/fuzz/* scripts/fuzz.sh" scripts/fuzz.sh --storm "$server" 400000
done
for server in redis-7.0 valkey-9.1; do
    for suite in locks server sessions; do
        slice "sanitize-$suite-$server" 420 "src/shell/* build.rs scripts/sanitize.sh" make sanitize SANITIZE="$suite" SERVERS="$server"
    done
    slice "hostile-$server!" 400 "src/* Cargo.* benches/servers/* scripts/hostile.sh" make hostile SERVERS="$server"
done
slice fuzz 300 "src/command/* src/shell/persistence/* fuzz/* tests/fuzz/* scripts/fuzz.sh" make fuzz FUZZ=--short
slice instructions 200 "src/* Cargo.* benches/instructions.txt benches/servers/* scripts/instructions.sh" make instructions
for part in 1 2 3 4; do
    slice "upstream-redis-7.0-$part" 400 "src/shell/* scripts/upstream.sh" env PART=$part/4 make upstream UPSTREAM="'--short redis-7.0'"
    slice "upstream-valkey-9.1-$part" 400 "src/shell/* scripts/upstream.sh" env PART=$part/4 make upstream UPSTREAM="'--short valkey-9.1'"
done
slice upgrade 300 "src/engine/record.rs src/engine/pairs.rs src/engine/terms.rs src/command/pack.rs src/shell/persistence/* tests/failover/upgrade.rs scripts/upgrade.sh" make upgrade
slice packaging 300 "packaging/* scripts/dist.sh scripts/monitoring.sh clients/cli/* src/shell/commands/info.rs" make dist monitoring
# By itself, since `packaging` writes the same target/dist/.
slice "packaging-debian!" 300 "packaging/* scripts/dist.sh" make dist DIST=--root
VERSION=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
slice release 300 "scripts/release.sh scripts/python.sh scripts/go.sh scripts/node.sh scripts/java.sh clients/*/Cargo.toml clients/*/package.json clients/*/pyproject.toml clients/*pom.xml clients/*go.mod" make release VERSION="$VERSION" RELEASE=registries
slice stock-clients 300 "tests/clients/* docs/clients.md src/command/* scripts/clients.sh" make clients
slice command-line-valkey-9.1 200 "$CLIENTS" "scripts/servers.sh valkey-9.1 && SERVER=.servers/valkey-9.1/redis-server scripts/test.sh --rust"
for server in $MATRIX; do
    slice "qualify-$server" 60 "src/shell/sys/* src/shell/delivery/* clients/cli/src/qualify/* scripts/servers.sh" "scripts/servers.sh $server && cargo build --package tether --package tether-cli && built=\$(scripts/need.sh --target)/debug && \$built/tether qualify --server .servers/$server/redis-server --module \$built/libtether.so"
done
slice "qualify-time!" 60 "clients/cli/src/qualify/*" scripts/test.sh --soak-clients half_a_minute
slice conform 260 "$MODULE clients/protocol/* scripts/conform.sh" make conform
for client in rust python go node java c; do
    slice "conform-$client!" 240 "clients/$client/* clients/protocol/* scripts/$client.sh scripts/conform.sh" make conform CLIENT="$client"
done
slice conform-mutants 480 "clients/rust/src/core/* clients/protocol/conform/* scripts/conform.sh" make conform CLIENT=mutants
slice "conform-devserver!" 300 "$CLIENTS clients/protocol/conform/* scripts/conform.sh" make conform CLIENT=rust SERVERS="'devserver redis-7.0'"
for client in go node c; do
    slice "faults-$client!" 300 "clients/$client/* clients/protocol/conform/* scripts/$client.sh" env TETHER_FAULTS=90 make conform CLIENT="$client" CONFORM="'--only faults'"
done
slice "long-java!" 300 "clients/java/* scripts/java.sh" "cargo build --package tether --package tether-cli && TETHER_FAULTS=60 TETHER_KILLS=20 TETHER_STEPS=20000 scripts/java.sh --long"
slice "many!" 300 "clients/rust/*" scripts/test.sh --soak-clients --test many
slice campaign 400 "$CLIENTS clients/python/*" make campaign TETHER_STEPS=90
# Compiled as a release is, since there are so many: all histories of some steps, all of two or three that wait, a million in which
# prefixes are watched.
deep() { slice "$1" 400 "$SIMULATION" scripts/test.sh --soak --profile bench --test simulation "$2"; }
deep exhaustive-steps _steps
deep exhaustive-waits all_histories_of_t
deep prefixes half_a_million
slice random-worlds 400 "$SIMULATION" "$(long 3000000 simulation the_engine_does_what_the_model_says)"
slice random-histories 400 "src/* tests/history/* tests/support/src/model/*" "$(long 60000 history random_histories)"
slice crashes 400 "$MODULE tests/failover/*" "$(long 60 failover crashes)"
slice resyncs 400 "$MODULE tests/failover/*" "$(long 30 failover resyncs)"
slice acknowledged 400 "$MODULE tests/failover/* src/engine/rules/acks.rs" "$(long 40 failover acknowledged)"
slice sentinels 400 "$MODULE tests/failover/*" "$(long 15 failover sentinels)"
slice sessions-crash 400 "$MODULE tests/failover/*" "$(long 25 failover sessions)"
slice cluster-campaign 400 "$MODULE tests/cluster/*" "$(long 4 cluster campaign)"
slice cluster-failovers 400 "$MODULE tests/cluster/*" "$(long 20 cluster matrix)"
slice cluster-acknowledged 400 "$MODULE tests/cluster/*" "$(long 30 cluster acknowledged)"
slice races 200 "$MODULE tests/locks/*" scripts/test.sh --soak --test locks --test server
slice quorum-models 400 "clients/rust/src/quorum/*" "$(long_client 2000000 quorum::)"
slice quorum-faults 400 "$CLIENTS" "$(long_client 100 quorum_faults)"
