"""This room speaks to ZooKeeper: sessions, znodes, watches. It calls nothing of ours on kazoo's own threads."""
