"""Reports: what was found about rules and tables, for a terminal and as JSON."""
