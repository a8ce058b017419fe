"""Connections are made here: names, addresses, proxies, dialers of the user."""
