"""Metrics, statistics, health, reporters, telemetry, interceptors."""
