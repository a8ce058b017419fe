"""Requests and responses of transactions (KIP-98, KIP-664, KIP-890)."""
