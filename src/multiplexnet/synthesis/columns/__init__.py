"""A table as columns of whole numbers, and back."""
