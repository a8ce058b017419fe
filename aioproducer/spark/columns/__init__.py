"""Columns of a DataFrame as keys and values of records: start with `schema` and `encoding`."""
