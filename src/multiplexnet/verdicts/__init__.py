"""Exact truth of formulas on arrays and tensors, their floats read as rational numbers."""
