"""Formats of input: text (CSV, NDJSON, lines), Avro, ORC and Parquet; see `format.Format`."""
