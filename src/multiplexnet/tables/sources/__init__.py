"""Where tables come from: CSV, Parquet and Arrow files, databases, and tables in memory, a block of rows at a time."""
