"""Rules that hold for a table: what its columns are, and what seems to tie them together."""
