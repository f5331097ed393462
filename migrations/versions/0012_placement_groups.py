"""Add placement groups, the aggregates that are their domains, and their members.

The previous release does not know groups. It keeps their rows consistent all the same: a membership is
deleted with its consumer.

Revision: 0012, after 0011.
"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.create_table(
        "placement_groups",
        sa.Column("id", sa.Integer, sa.Identity(), nullable=False),
        sa.Column("uuid", sa.String(36, collation="C"), nullable=False),
        sa.Column("policy", sa.String(20, collation="C"), nullable=False),
        sa.Column("max_per_domain", sa.Integer),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.text("now()")),
        sa.Column("updated_at", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("id", name="placement_groups_pkey"),
        sa.UniqueConstraint("uuid", name="placement_groups_uuid_key"),
        sa.CheckConstraint(
            "policy IN ('affinity', 'anti-affinity', 'soft-affinity', 'soft-anti-affinity')",
            name="placement_groups_policy_check",
        ),
        sa.CheckConstraint(
            "(policy LIKE '%anti-affinity') = (max_per_domain IS NOT NULL)"
            " AND coalesce(max_per_domain, 1) > 0",
            name="placement_groups_max_per_domain_check",
        ),
    )
    op.create_table(
        "placement_group_aggregates",
        sa.Column("group_id", sa.Integer, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("aggregate_uuid", sa.String(50, collation="C"), nullable=False),
        sa.PrimaryKeyConstraint("group_id", "position", name="placement_group_aggregates_pkey"),
        sa.UniqueConstraint(
            "group_id", "aggregate_uuid", name="placement_group_aggregates_group_id_aggregate_uuid_key"
        ),
        sa.ForeignKeyConstraint(
            ["group_id"],
            ["placement_groups.id"],
            name="placement_group_aggregates_group_id_fkey",
            ondelete="CASCADE",
        ),
    )
    op.create_table(
        "placement_group_members",
        sa.Column("consumer_id", sa.BigInteger, nullable=False),
        sa.Column("group_id", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("consumer_id", name="placement_group_members_pkey"),
        sa.ForeignKeyConstraint(
            ["consumer_id"],
            ["consumers.id"],
            name="placement_group_members_consumer_id_fkey",
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["group_id"], ["placement_groups.id"], name="placement_group_members_group_id_fkey"
        ),
    )
    op.create_index(
        "placement_group_members_group_id_consumer_id_idx",
        "placement_group_members",
        ["group_id", "consumer_id"],
    )


def downgrade() -> None:
    op.drop_table("placement_group_members")
    op.drop_table("placement_group_aggregates")
    op.drop_table("placement_groups")
