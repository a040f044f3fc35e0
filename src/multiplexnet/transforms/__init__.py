"""Differentiable maps from all of R^r into a polyhedron, with inverse and log-determinant."""
