"""Whose an open interaction is: the process that asked, so that others know when it is gone."""

import sqlalchemy as sa
from alembic import op

from ironcurtain_proxy.auto_confirm.store.faults import StoreError

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Make what is missing."""
    inspector = sa.inspect(op.get_bind())
    columns = {column["name"] for column in inspector.get_columns("claude_interactions")}
    if "owner" not in columns:
        op.add_column("claude_interactions", sa.Column("owner", sa.Text))


def downgrade() -> None:
    """Never: no revision is taken back."""
    raise StoreError("the store is not taken back to an older schema")
