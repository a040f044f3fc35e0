"""The text of rules, read: statements, declarations, expressions, and what their pieces stand for."""
