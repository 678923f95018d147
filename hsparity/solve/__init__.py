"""What each slot, row and value of a candidate really is: the structural solver."""
