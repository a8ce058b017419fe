"""The producer: its calls, states and transactions. Start with `producer.Producer`."""
