"""Records become batches: memory, partitions, queues, what is ready to be sent."""
