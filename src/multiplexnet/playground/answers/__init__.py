"""What the page asks for: the verdict on rules, pictures, maps of raw points, single rows, code to copy."""
