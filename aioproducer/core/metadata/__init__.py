"""Which brokers, topics and partitions there are: the metadata and its requests."""
