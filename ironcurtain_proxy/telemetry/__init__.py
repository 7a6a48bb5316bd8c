"""Calls as spans and metrics of OpenTelemetry, off by default.

- `observed`: the recorder of a session, which makes a span of each record.
- `export`: where spans and metrics go; the one module that knows the SDK.
"""
