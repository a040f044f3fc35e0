"""Mathematics in whole numbers and fractions: float formats, rows, linear programs, lattices. It knows no rules."""
