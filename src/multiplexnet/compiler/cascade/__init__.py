"""Rules that no disjunctive normal form can hold: one output after another, each in exactly what is left."""
