"""Spark writes to Kafka through aioproducer."""
