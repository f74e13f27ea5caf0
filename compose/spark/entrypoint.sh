#!/bin/sh
# Spark's master, or, where MASTER says which one (spark://host:port), a worker of it. HOST is where others reach this
# one (default: its host name); PORT the master's; CORES and MEMORY what a worker has to give.
set -eu
HOST=${HOST:-$(hostname)}
if [ -n "${MASTER:-}" ]; then
    exec spark-class org.apache.spark.deploy.worker.Worker --host "$HOST" --webui-port 0 \
        --cores "${CORES:-2}" --memory "${MEMORY:-2g}" "$MASTER"
fi
exec spark-class org.apache.spark.deploy.master.Master --host "$HOST" --port "${PORT:-7077}" --webui-port 0
