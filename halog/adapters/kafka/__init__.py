"""This room speaks to Kafka: appends, reads, topics and their settings. It never judges what counts in a log."""
