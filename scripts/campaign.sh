#!/usr/bin/env bash
# A thousand faults around `tether run` and the Python client in network namespaces, as root (TETHER_STEPS=90: a tenth of it;
# TETHER_SERVER, TETHER_MODULE).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/need.sh ip
# shellcheck source=scripts/tested.sh
. scripts/tested.sh
TETHER_PYTHON=$(scripts/python.sh --program)
export TETHER_PYTHON
exec cargo test --package tether-cli --test campaign -- --ignored --nocapture --test-threads 1
