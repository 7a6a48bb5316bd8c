"""Calls as spans and metrics of OpenTelemetry, off by default.

- `export`: a span of each record, and where spans and metrics go; the one module that knows the
  SDK.
"""
