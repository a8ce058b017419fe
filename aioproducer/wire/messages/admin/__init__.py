"""Requests and responses of administration: the cluster, its topics and their configuration."""
