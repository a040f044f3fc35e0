"""Tables made to order: a model of the rows of a table whose every sample obeys the rules."""
