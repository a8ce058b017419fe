"""Metrics, statistics, health, reporters, telemetry and interceptors."""
