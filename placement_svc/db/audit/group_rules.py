"""The query for members of placement groups that violate a hard policy (`docs/spec/extensions.md 5.2`).

It finds for all groups at once what `placement_svc.domain.placement_groups.violations` finds for one;
`tests/api/test_placement_groups.py` compares both with the oracle.
"""

import os_traits

VIOLATIONS = f"""
    WITH supplier AS (
        SELECT DISTINCT entry.ctid AS at, entry.group_id, entry.consumer_id, provider.root_id,
               provider.trait_ids @> ARRAY[sharing.id] AS is_sharing
          FROM placement_group_members AS entry
          JOIN placement_groups AS placement_group
            ON placement_group.id = entry.group_id AND placement_group.policy NOT LIKE 'soft-%'
          JOIN allocations AS allocation ON allocation.consumer_id = entry.consumer_id
          JOIN resource_providers AS provider ON provider.id = allocation.provider_id
          JOIN traits AS sharing ON sharing.name = '{os_traits.MISC_SHARES_VIA_AGGREGATE}'
    ),
    -- Sharing providers count only for a consumer that has no others.
    member_root AS (
        SELECT DISTINCT at, group_id, consumer_id, root_id
          FROM (SELECT *, bool_and(is_sharing) OVER (PARTITION BY consumer_id) AS only_sharing
                  FROM supplier) AS supplier
         WHERE only_sharing OR NOT is_sharing
    ),
    all_roots AS (
        SELECT at, array_agg(root_id ORDER BY root_id) AS root_ids FROM member_root GROUP BY at
    ),
    -- The first of the group's aggregates that a root is a member of.
    first_listed AS (
        SELECT member_root.group_id, member_root.root_id, min(entry.position) AS position
          FROM (SELECT DISTINCT group_id, root_id FROM member_root) AS member_root
          JOIN provider_aggregates AS joined ON joined.provider_id = member_root.root_id
          JOIN aggregates AS aggregate ON aggregate.id = joined.aggregate_id
          JOIN placement_group_aggregates AS entry
            ON (entry.group_id, entry.aggregate_uuid) = (member_root.group_id, aggregate.uuid)
         GROUP BY member_root.group_id, member_root.root_id
    ),
    -- A domain is a root, or the position of an aggregate. NULL: the root is in none of the aggregates.
    domain AS (
        SELECT DISTINCT at, group_id, consumer_id,
               CASE WHEN group_id IN (SELECT group_id FROM placement_group_aggregates) THEN position
                    ELSE root_id
                END AS domain
          FROM member_root
          LEFT JOIN first_listed USING (group_id, root_id)
    ),
    occupied AS (
        SELECT group_id, domain, count(*) AS members,
               rank() OVER (PARTITION BY group_id ORDER BY count(*) DESC)
          FROM domain
         WHERE domain IS NOT NULL
         GROUP BY group_id, domain
    ),
    -- The domain that has more members of an affinity group than any other, if there is one.
    fullest AS (
        SELECT group_id, min(domain) AS domain
          FROM occupied
         WHERE rank = 1
         GROUP BY group_id
        HAVING count(*) = 1
    )
    SELECT domain.at, domain.group_id, domain.consumer_id, placement_group.max_per_domain, all_roots.root_ids
      FROM domain
      JOIN all_roots ON all_roots.at = domain.at
      JOIN placement_groups AS placement_group ON placement_group.id = domain.group_id
      LEFT JOIN occupied ON (occupied.group_id, occupied.domain) = (domain.group_id, domain.domain)
      LEFT JOIN fullest ON fullest.group_id = domain.group_id
     GROUP BY domain.at, domain.group_id, domain.consumer_id, placement_group.max_per_domain,
              all_roots.root_ids
    HAVING bool_or(domain.domain IS NULL
                OR CASE WHEN placement_group.max_per_domain IS NULL
                        THEN domain.domain IS DISTINCT FROM fullest.domain
                        ELSE occupied.members > placement_group.max_per_domain
                    END)
"""
