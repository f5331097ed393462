"""Exports to files, and imports from files or from another Placement service."""
