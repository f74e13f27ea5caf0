"""This room has pure steps on a partition's table, as it stands in ZooKeeper. It never writes a table."""
