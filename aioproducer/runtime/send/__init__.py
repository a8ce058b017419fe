"""Steps of one `send()` call, from its arguments to a record in a batch."""
