#!/bin/sh
# Who this server is, from MYID and SERVERS ("name1 name2 name3", in the order of their ids); everything else is the
# image's. Then becomes the server.
set -eu
cd /data
mkdir -p zookeeper/data logs tmp
cp /opt/halog/log4j2.properties zookeeper/
echo "$MYID" >zookeeper/data/myid
{
    cat /opt/halog/zoo.cfg
    id=0
    for name in $SERVERS; do
        id=$((id + 1))
        echo "server.$id=$name:2888:3888"
    done
} >zookeeper/zoo.cfg
exec java @/opt/halog/command
