"""Scripts of the repository that are no part of the package: they train the small drafters the examples use."""
