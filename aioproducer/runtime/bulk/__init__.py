"""`send_many` and `send_arrow`."""
