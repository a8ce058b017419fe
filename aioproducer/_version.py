"""The version, for the package, its metadata and the brokers (KIP-511)."""

__version__ = "0.1.0"
