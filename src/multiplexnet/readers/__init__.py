"""Rules that were not written as text: arrays of numbers, schemas of records."""
