"""Messages that only brokers and topic administration need; see `aioproducer.wire.messages`."""
