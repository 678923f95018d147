"""Readers of folders that no probe of ours wrote, one format per file. Each defines `READER`."""
