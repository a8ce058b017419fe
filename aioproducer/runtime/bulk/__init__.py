"""The bulk calls `send_many` and `send_arrow`."""
