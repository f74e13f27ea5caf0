#!/bin/sh
# Who this broker is, from NODE_ID, NAME (in the network), OUTSIDE (host:port for clients outside of it), VOTERS and
# CLUSTER_ID; everything else is the image's. Formats an empty data directory, then becomes the server.
set -eu
cd /data
mkdir -p kafka logs tmp
cp /opt/halog/log4j2.properties kafka/
{
    cat /opt/halog/server.properties
    echo "node.id=$NODE_ID"
    echo "controller.quorum.voters=$VOTERS"
    echo "listeners=INSIDE://:9092,OUTSIDE://:9094,CONTROLLER://:9093"
    echo "advertised.listeners=INSIDE://$NAME:9092,OUTSIDE://$OUTSIDE"
} >kafka/server.properties
[ -f kafka/data/meta.properties ] ||
    java @/opt/halog/format format --cluster-id "$CLUSTER_ID" --config kafka/server.properties
exec java "-XX:SharedArchiveFile=/opt/halog/server.jsa" @/opt/halog/command
