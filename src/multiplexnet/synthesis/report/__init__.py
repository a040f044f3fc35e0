"""A made table beside the real one: figures and a page."""
