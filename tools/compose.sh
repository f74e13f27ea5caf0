#!/bin/sh
# `make compose`: prepares the build contexts, builds on images that are here, brings the cluster up and waits until it
# is healthy. Words are passed to docker compose instead: `tools/compose.sh down -v`, `tools/compose.sh logs node-a`.
# Contexts are prepared wherever the words build something; Spark's, half a gigabyte, where they or COMPOSE_PROFILES name
# it. `down` ends Spark's containers, too, which compose would leave behind without their profile.
set -eu
cd "$(dirname "$0")/.."
base() { .venv/bin/python -m tests.containers.available "$1"; }
HALOG_JRE_IMAGE=$(base kafka)
HALOG_PYTHON_IMAGE=$(base node)
export HALOG_JRE_IMAGE HALOG_PYTHON_IMAGE
[ $# -gt 0 ] || set -- up --build --detach --wait --wait-timeout 180
case " $* " in
    *" build "* | *" --build "*)
        spark=
        case "$* ${COMPOSE_PROFILES:-}" in *spark*) spark=spark ;; esac
        .venv/bin/python -m tools.images kafka zookeeper node $spark >/dev/null
        ;;
esac
[ "$1" != down ] || set -- --profile spark "$@"
exec docker compose -f compose/compose.yaml "$@"
