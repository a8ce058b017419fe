"""Tests of `aioproducer.wire`."""
