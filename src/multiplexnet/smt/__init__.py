"""Formulas in z3: questions about them, and rules that come from z3 expressions and SMT-LIB scripts."""
