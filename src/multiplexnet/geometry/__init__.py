"""The polyhedron of one term, exactly: dimension, redundancy, an anchor inside, the lattice of its equalities."""
