"""The command line, tables and pictures. Everything here needs the extra `cli`."""
