"""Rules as text and as formulas: reading them, writing them back. Nothing heavy is imported here."""
