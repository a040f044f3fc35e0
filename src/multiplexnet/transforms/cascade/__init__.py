"""The map of a cascade: a small choice and a number for each output in turn."""
