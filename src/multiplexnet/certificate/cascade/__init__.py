"""Cascades in a certificate: what is said of them, and its proof."""
