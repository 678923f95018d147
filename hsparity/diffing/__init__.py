"""Two comparisons held against each other: what changed, what got worse, and what to try. Needs no torch."""
