# Everything that one does with this project. The work is in scripts/, each of which says what it does.
# SERVER=/path/to/redis-server takes another server than the first one on PATH; SERVERS="redis-8.0 ..." a part of the matrix;
# PORT=... another port; PROFILE=1 builds the module as a release has it (after `make profile`), for whatever is done with it.

export SERVER PORT PROFILE
SERVERS ?=

.DEFAULT_GOAL := help
.PHONY: help run run-cluster build cli test test-clients test-servers test-matrix nightly bench hostile instructions profile lint soak clients fuzz sanitize campaign upstream upgrade servers clean-servers python conform vectors dist monitoring runbook pictures release

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: build ## a server with the module on port 6379 (PORT=... for another), in the foreground (installs what is missing)
	@scripts/run.sh

run-cluster: build ## a cluster of three masters and three replicas on ports 7001 to 7006 (PORT=... for others)
	@scripts/run-cluster.sh

build: ## the module in release mode: target/release/libtether.so; PROFILE=1 as in a release, after `make profile`
	@scripts/build.sh

cli: ## the command line in release mode: target/release/tether
	@scripts/need.sh cargo cc libclang
	cargo build --release --package tether-cli

test: ## the module and its documents: unit tests, simulation, integration tests on a real server (installs what is missing)
	@scripts/test.sh

test-clients: ## the clients: Rust, the command line, Python, C, Go, Node.js, Java; the vectors of the clients' protocol
	@scripts/need.sh python
	@python3 clients/protocol/check.py --run
	@scripts/test.sh --clients
	@scripts/runbook.sh

test-servers: ## the integration tests on the servers on which each change is tested: Redis 7.0 and 8.0, Valkey 8.0 and 9.1
	@scripts/test.sh --servers $(SERVERS)

test-matrix: ## the same on every server that docs/servers.md calls tested; 45 minutes
	@scripts/test.sh --matrix

bench: ## measures everything and writes docs/benchmarks.md; BENCH="pairs" a part, BENCH=--short a quick look
	@SERVERS="$(SERVERS)" scripts/bench.sh $(BENCH)

hostile: ## builds whatever could make us slow, and fails if another client's PING waits too long; HOSTILE=--short a quick look
	@SERVERS="$(SERVERS)" scripts/hostile.sh $(HOSTILE)

instructions: ## fails if an operation needs over 5 % more instructions than were kept; INSTRUCTIONS=--keep keeps today's
	@scripts/instructions.sh $(or $(INSTRUCTIONS),--check)

profile: ## records what of the module is used most, for `make build PROFILE=1` to lay its code out by; some minutes
	@scripts/profile.sh

lint: ## formatters and lints of each language, as CI asks for
	@scripts/need.sh cargo cc libclang codespell
	git ls-files | grep -vE '\.(svg|lock|sum|rdb|aof|bin|txt)$$|package-lock|^fuzz/corpus/' | xargs codespell
	cargo fmt --all --check
	cargo clippy --all-targets -- -D warnings
	$(CC) -std=c99 -O2 -Wall -Wextra -Werror -c -o /dev/null src/shell/sys/shim.c
	RUSTDOCFLAGS="-D warnings" cargo doc --quiet --no-deps --document-private-items
	@for language in python c go node java; do scripts/$$language.sh --lint || exit; done

soak: ## the tests that take long: random histories, clusters in trouble, leaks, a million keys
	@scripts/test.sh --soak
	@scripts/test.sh --soak-clients

nightly: ## whatever takes too long for each change, in slices of at most eight minutes; NIGHTLY="fuzz races" some of them, NIGHTLY=--list
	@scripts/nightly.sh $(NIGHTLY)

clients: ## stock clients in nine languages against the module, and docs/clients.md against them; CLIENTS="redis-py fred" a part
	@scripts/clients.sh $(CLIENTS)

python: build ## of test-clients, only the Python package; PYTEST="-k orphans" a part
	@TETHER_MODULE="$(CURDIR)/target/release/libtether.so" TETHER_SERVER="$(SERVER)" scripts/python.sh $(PYTEST)

conform: build ## a client keeps the clients' protocol, on real servers and a faulty wire: CLIENT=model|rust|python|go|node|java|c; CONFORM="--only fence" a part; CLIENT=mutants breaks it
	@SERVERS="$(SERVERS)" scripts/conform.sh $(or $(CLIENT),model) $(CONFORM)

vectors: ## of the clients' protocol the scripts for the pure core, with a client: CLIENT=model|rust|python|go|node|java|c
	@scripts/conform.sh --vectors $(or $(CLIENT),model)

dist: ## what a release consists of, in target/dist/: module, command line, .deb, .rpm; DIST=--root installs the .deb into a new Debian too
	@scripts/dist.sh $(DIST)

release: ## a release in target/release-VERSION/: VERSION=1.2.3 in all files, make dist, checksums, what each registry would get; RELEASE="versions" a part
	@scripts/release.sh $(or $(VERSION),$(error VERSION=1.2.3 is missing)) $(RELEASE)

runbook: ## of test-clients, only the steps of docs/operations.md and docs/tasks.md, as they are written there; RUNBOOK="upgraded" a part
	@scripts/runbook.sh $(RUNBOOK)

pictures: ## draws docs/holder-dies.svg and docs/failover.svg from real runs
	@scripts/runbook.sh --draw

monitoring: build ## the metrics, alerts and board in packaging/monitoring, with a real exporter and Prometheus
	@scripts/monitoring.sh

fuzz: ## whatever can be said, to the parsers and to real servers; FUZZ=--short a quick look, else some hours
	@SERVERS="$(SERVERS)" scripts/fuzz.sh $(FUZZ)

sanitize: ## the suites on servers with AddressSanitizer, which sees each wrong use of memory; SANITIZE="locks" a part
	@SERVERS="$(SERVERS)" scripts/sanitize.sh $(SANITIZE)

campaign: build ## a thousand faults around `tether run` and the Python client in network namespaces, as root; some minutes. TETHER_STEPS=90 a tenth of it
	@TETHER_MODULE="$(CURDIR)/target/release/libtether.so" TETHER_SERVER="$(SERVER)" scripts/campaign.sh

upstream: ## the servers' own test suites, with the module and without; UPSTREAM="--short redis-7.0" a part; some hours
	@scripts/upstream.sh $(UPSTREAM)

upgrade: ## today's module and the last release's beside each other, as master and as replica, and with each other's files; FROM=COMMIT another one
	@SERVERS="$(SERVERS)" scripts/upgrade.sh

servers: ## fetch the servers on which each change is tested into .servers/
	@scripts/servers.sh

clean-servers: ## forget the fetched servers
	rm -rf .servers
