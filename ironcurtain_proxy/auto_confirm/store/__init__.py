"""Interactions, decisions, patterns and safe paths in SQL: an index beside the audit log.

Imported only where the engine is on: SQLAlchemy takes a third of a second to import.

- `store`: what the rest of the engine calls. `rows`, `faults`: its values, and its errors.
- `database`, `files`, `schema`, `tables`: the database and its tables.
- `interactions`, `patterns`, `health`, `retention`, `abandoned`: the statements,
  each about one subject.
- `metrics`, `series`, `plots`, `report`: figures for people and for Prometheus.
- `opening`, `open_file`: how a store is opened, and whether its file is still the same.
"""
