"""Adapters for other projects: `otel` for OpenTelemetry, `faststream` for FastStream."""
