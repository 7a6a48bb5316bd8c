"""How the tables came to be as they are: Alembic revisions, in `versions`."""
