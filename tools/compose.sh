#!/bin/sh
# `make compose`: prepares the build contexts, builds on images that are here, brings the cluster up and waits until it
# is healthy. Words are passed to docker compose instead: `tools/compose.sh down -v`, `tools/compose.sh logs node-a`.
set -eu
cd "$(dirname "$0")/.."
base() { .venv/bin/python -m tests.containers.available "$1"; }
HALOG_JRE_IMAGE=$(base kafka)
HALOG_PYTHON_IMAGE=$(base node)
export HALOG_JRE_IMAGE HALOG_PYTHON_IMAGE
[ $# -eq 0 ] || exec docker compose -f compose/compose.yaml "$@"
.venv/bin/python -m tools.images >/dev/null
exec docker compose -f compose/compose.yaml up --build --detach --wait --wait-timeout 180
