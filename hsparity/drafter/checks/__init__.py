"""The static contract between a draft head, an engine and a target: one check a file, found by registry.checks()."""
