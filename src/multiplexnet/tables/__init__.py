"""Tables under rules: files and data frames read as exact numbers, and which of their rows break which rule."""
