"""Tests of what servers are held to."""
