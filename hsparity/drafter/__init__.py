"""What drift costs an EAGLE-3 draft head in accepted tokens."""
