"""One call of `send()`, from its arguments to a record in a batch."""
