"""This room has names and formats in Kafka: topics, schemas, the state topic, the verdict on each record of a log."""
