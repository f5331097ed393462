-- Rows of every table, for a database at revision 0007 or later.

INSERT INTO resource_classes (id, name) VALUES (0, 'VCPU'), (10001, 'CUSTOM_GOLD');
INSERT INTO traits (id, name) VALUES (10001, 'CUSTOM_FAST');
INSERT INTO aggregates (uuid) VALUES ('aaaaaaaa-0000-4000-8000-000000000001');
INSERT INTO resource_providers (uuid, name, generation, root_id, path) VALUES
    ('aaaaaaaa-0000-4000-8000-000000000002', 'host', 7, 1, '{1}');
INSERT INTO provider_traits VALUES (1, 10001);
INSERT INTO provider_aggregates VALUES (1, 1, 1);
INSERT INTO inventories (provider_id, root_id, resource_class_id, total, reserved, min_unit, max_unit,
                         step_size, allocation_ratio)
VALUES (1, 1, 0, 8, 1, 1, 6, 1, 2), (1, 1, 10001, 4, 0, 1, 4, 2, 1);
INSERT INTO projects (external_id) VALUES ('project');
INSERT INTO users (external_id) VALUES ('user');
INSERT INTO consumer_types (name) VALUES ('INSTANCE');
INSERT INTO consumers (uuid, project_id, user_id, consumer_type_id, generation) VALUES
    ('aaaaaaaa-0000-4000-8000-000000000003', 1, 1, 1, 3);
INSERT INTO allocations (consumer_id, provider_id, resource_class_id, used) VALUES
    (1, 1, 0, 5), (1, 1, 10001, 2);
