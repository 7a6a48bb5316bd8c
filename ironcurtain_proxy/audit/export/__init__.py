"""Calls of the audit log in the formats of other programs.

- `table`: CSV, for spreadsheets.
- `ocsf`: the Open Cybersecurity Schema Framework, for security event stores.
- `otlp`: log records of OpenTelemetry, for collectors.
"""
