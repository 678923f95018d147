"""Which row of one side is which row of the other, and which site."""
