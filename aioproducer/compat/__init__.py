"""Other clients' interfaces on this producer."""
