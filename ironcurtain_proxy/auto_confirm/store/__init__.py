"""Interactions, decisions, patterns and safe paths in SQL: an index beside the audit log.

Imported only where the engine is on: SQLAlchemy takes a third of a second to import.

- `store`: the interface for the engine, and its health. `rows`: its values, and its errors.
- `database`, `files`, `tables`: the database, the check of its file, its tables and their version.
- `interactions`, `patterns`: the statements, each about one subject.
- `metrics`, `report`: figures for people and for Prometheus.
"""
