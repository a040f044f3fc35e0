"""Rows drawn under the rules: in blocks, under conditions, by several processes."""
