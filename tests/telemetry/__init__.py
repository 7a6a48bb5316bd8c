"""Tests of spans and metrics."""
