"""Interactions, decisions, patterns and safe paths in SQL: an index beside the audit log.

Imported only where the engine is on: SQLAlchemy takes a third of a second to import.

- `store`: the interface for the engine. `rows`, `faults`: its values, and its errors.
- `database`, `files`, `schema`, `tables`: the database and its tables.
- `interactions`, `patterns`, `learned`, `health`, `retention`: the statements, each about one
  subject.
- `metrics`, `series`, `plots`, `report`: figures for people and for Prometheus.
- `opening`, `open_file`: the opening of a store, and the check of its file.
"""
