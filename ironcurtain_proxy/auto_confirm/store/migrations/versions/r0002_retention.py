"""What removing old interactions needs: an index on their age, and when it was done last."""

import sqlalchemy as sa
from alembic import op

from ironcurtain_proxy.auto_confirm.store.faults import StoreError

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make what is missing."""
    connection = op.get_bind()
    inspector = sa.inspect(connection)
    indexes = {index["name"] for index in inspector.get_indexes("claude_interactions")}
    if "ix_interactions_created" not in indexes:
        op.create_index("ix_interactions_created", "claude_interactions", ["created_at"])
    upkeep = sa.Table(
        "ironcurtain_upkeep",
        sa.MetaData(),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("done_at", sa.TIMESTAMP),
    )
    if not inspector.has_table(upkeep.name):
        upkeep.create(connection)
    # There from the beginning, so that two that want it at once have a row to wait for.
    if connection.execute(sa.select(upkeep).where(upkeep.c.name == "retention")).first() is None:
        connection.execute(sa.insert(upkeep).values(name="retention"))


def downgrade() -> None:
    """Never: no revision is taken back."""
    raise StoreError("the store is not taken back to an older schema")
