"""The version, for the package, its metadata and what brokers are told (KIP-511)."""

__version__ = "0.1.0"
