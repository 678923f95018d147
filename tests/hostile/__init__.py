"""Text that somebody else wrote, in every place where it can stand in a record."""
