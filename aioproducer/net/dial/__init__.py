"""Dialing: name resolution, addresses, proxies, user-defined dialers."""
