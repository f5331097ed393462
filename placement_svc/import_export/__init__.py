"""Moving data: exports to files, imports from files and from another Placement service."""
