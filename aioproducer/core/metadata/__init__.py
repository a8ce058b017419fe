"""Metadata of the cluster (brokers, topics, partitions) and its requests."""
