"""This room has names and formats in Kafka: schemas, the state topic, what a log's history says."""
