#!/usr/bin/env bash
# Whether what packaging/monitoring has for Prometheus and Grafana is so: the alerts by Prometheus' own tool, then all of it
# with a real server, redis_exporter and Prometheus.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/need.sh server python prometheus prometheus-redis-exporter
(cd packaging/monitoring && promtool check config prometheus.yml && promtool test rules alerts.test.yml) > /dev/null
tether=$(cargo build --package tether-cli --release --message-format=json-render-diagnostics |
    sed -n 's/.*"executable":"\([^"]*\/tether\)".*/\1/p' | tail -n 1)
python3 packaging/monitoring/check.py "${SERVER:-$(scripts/need.sh --server-path)}" "$PWD/target/release/libtether.so" "$tether"
