"""Rules as exact formulas: reading them, deciding them, bringing them into disjunctive normal form.

This stage works in exact fractions and is the only one that knows z3.
"""
