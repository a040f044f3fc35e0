"""Variables leave clauses of whole-number rows one after another; what is left says where each may lie."""
