"""Interactions, decisions, patterns and safe paths in SQL: an index beside the audit log.

Imported only where the engine is on: SQLAlchemy takes a third of a second to import.

- `store`: the interface for the engine. `rows`, `faults`: its values, and its errors.
- `database`, `files`, `schema`, `tables`: the database, the check of its file, its tables.
- `interactions`, `patterns`, `health`: the statements, each about one subject.
- `metrics`, `report`: figures for people and for Prometheus.
"""
