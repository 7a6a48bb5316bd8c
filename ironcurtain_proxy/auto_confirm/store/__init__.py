"""Interactions, decisions, patterns and safe paths in SQL: an index beside the audit log.

Imported only where the auto-confirm engine is on: SQLAlchemy takes a third of a second to import.
"""
