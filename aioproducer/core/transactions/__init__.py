"""Transactions: states, requests to coordinators, contents, sequences."""
