#!/bin/sh
# The node named by NODE; its line on stdout (it is up) goes where the health check looks, its log to the container's.
set -eu
rm -f /tmp/up.json
exec halog node start --name "$NODE" --format json --log-level info >/tmp/up.json
