#!/usr/bin/env bash
# The Java client of clients/java:
#
#   scripts/java.sh [MAVEN..]       mvn verify: its tests, among them the vectors of clients/protocol, on the JDK that Maven uses,
#                                   and again on the newest JDK of the machine
#                                   (TETHER_SERVER, TETHER_MODULE, TETHER_PROGRAM: the command tether; TETHER_STEPS interrupted acquires)
#   scripts/java.sh --vectors       of them only the vectors, which need no server
#   scripts/java.sh --lint          formatting (spotless), javac -Xlint:all and javadoc without warnings
#   scripts/java.sh --conform [..]  clients/protocol/conform with its adapter
#   scripts/java.sh --long          what takes long: 300 faults, 100 kills of applications of Spring Boot, 100,000 interrupted acquires
#                                   (TETHER_FAULTS, TETHER_KILLS, TETHER_STEPS: others)
#   scripts/java.sh --bench [..]    clients/java/beside: this client beside Redisson, Curator and Spring's locks, with their real clients
#                                   (--short: to see that it works; --write FILE: renews the section of a page)
#   scripts/java.sh --publish       what would be published, in target/java/published
#
# Libraries come from Maven Central, once: later runs are offline. The last line of a run is in cargo's form, which .ci/run sums.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

ROOT=$PWD

scripts/need.sh java mvn
case ${1:-} in
    --vectors | --lint | --publish) ;;
    # shellcheck source=scripts/tested.sh
    *) . scripts/tested.sh ;;
esac
mkdir -p "$ROOT/target/java"
cd clients/java

# maven WHAT ARGUMENT...: offline, if a run of the same kind with the same libraries has succeeded before.
maven() {
    local stamp="$ROOT/target/java/$1" sum mode=()
    shift
    sum=$(cat pom.xml */pom.xml | sha256sum)
    [ "$(cat "$stamp" 2>/dev/null)" != "$sum" ] || mode=(-o)
    # JUnit's time limits (pom.xml) interrupt a test, which may wait on; and Maven waits half an hour for a silent repository.
    "$ROOT/scripts/within.sh" 1500 mvn -B -ntp "${mode[@]}" "$@" || return
    echo "$sum" > "$stamp"
}

# The newest JDK, if it is newer than Maven's.
newest_java() {
    local java version newest="" most homes=()
    for java in "${!JAVA_HOME_@}"; do homes+=("${!java}/bin/java"); done # as a public host's workflow has them
    most=$(java -XshowSettings:properties -version 2>&1 | sed -n 's/ *java.specification.version = //p')
    for java in /usr/lib/jvm/*/bin/java /Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java ${homes[@]+"${homes[@]}"}; do
        [ -x "$java" ] || continue
        version=$("$java" -XshowSettings:properties -version 2>&1 | sed -n 's/ *java.specification.version = //p')
        if [ "${version%%.*}" -gt "${most%%.*}" ]; then newest=$java most=$version; fi
    done
    echo "$newest"
}

case ${1:-} in
    --lint)
        # Compiled again: what is compiled already warns of nothing.
        rm -rf */target/classes */target/test-classes
        maven lint -q -Plint -DskipTests verify
        exit
        ;;
    --conform)
        shift
        maven conform -q -DskipTests package
        adapter=(java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$PWD/conform/target/tether-conform.jar:$PWD/conform/target/lib/*")
        # Each case starts it; with its classes in an archive it takes half the time.
        archive=$ROOT/target/java/adapter.jsa
        printf '%s\n' '{"n": 1, "call": "open", "url": "redis://127.0.0.1:1"}' \
            '{"n": 2, "call": "acquire", "id": "a", "keys": ["k"], "wait": 0}' |
            "${adapter[@]}" -XX:ArchiveClassesAtExit="$archive" tether.locks.conform.Adapter >/dev/null 2>&1
        exec python3 -B ../protocol/conform/conform.py --server "$TETHER_SERVER" --module "$TETHER_MODULE" "$@" -- \
            "${adapter[@]}" -XX:SharedArchiveFile="$archive" tether.locks.conform.Adapter
        ;;
    --publish)
        # Offline, Maven deploys nothing, not even into a folder.
        rm -rf "$ROOT/target/java/published" "$ROOT/target/java/publish"
        maven publish -q -Ppublish -DskipTests -Dmaven.install.skip=true deploy -DaltDeploymentRepository="here::file://$ROOT/target/java/published"
        cd "$ROOT/target/java/published"
        find . -name '*.jar' -o -name '*.pom' | sort
        exit
        ;;
    --bench)
        shift
        maven bench -q -pl tether-java,beside -DskipTests package dependency:build-classpath -Dmdep.outputFile=target/classpath -Dmdep.includeScope=runtime
        exec java -cp "beside/target/classes:$(cat beside/target/classpath)" -Dorg.slf4j.simpleLogger.defaultLogLevel=error tether.beside.Bench "$@"
        ;;
esac

output=$(mktemp)
trap 'rm -f "$output"' EXIT
status=0
if [ "${1:-}" = --long ]; then
    shift
    export TETHER_FAULTS=${TETHER_FAULTS:-300} TETHER_KILLS=${TETHER_KILLS:-100} TETHER_STEPS=${TETHER_STEPS:-100000}
    maven long -pl tether-java,tether-spring -Dtest='CampaignTest,JobsTest,InterruptTest' -Dsurefire.failIfNoSpecifiedTests=false \
        -Dsurefire.useFile=false verify "$@" 2>&1 | tee "$output" || status=$?
elif [ "${1:-}" = --vectors ]; then
    maven vectors -pl tether-java -Dtest=VectorsTest test 2>&1 | tee "$output" || status=$?
else
    maven verify verify "$@" 2>&1 | tee "$output" || status=$?
    newest=$(newest_java)
    if [ $status = 0 ] && [ -n "$newest" ]; then
        printf '\n==== again with %s ====\n\n' "$newest"
        maven newest verify -Djvm="$newest" "$@" 2>&1 | tee -a "$output" || status=$?
    fi
fi

[ $status = 0 ] && word=ok || word=FAILED
# The lines with the sums of a module, which name no class.
sed -nE 's/^\[[A-Z]+\] Tests run: ([0-9]+), Failures: ([0-9]+), Errors: ([0-9]+), Skipped: ([0-9]+)$/\1 \2 \3 \4/p' "$output" |
    awk -v word=$word '{ run += $1; failed += $2 + $3; skipped += $4 }
        END { passed = run - failed - skipped
            if (word != "ok" && !failed) failed = 1 # as where Maven has broken off
            printf "\ntest result: %s. %d passed; %d failed; %d ignored\n", word, passed, failed, skipped }'
exit $status
