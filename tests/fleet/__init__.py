"""Tests of `ironcurtain_proxy.fleet`, with real servers of PostgreSQL."""
