"""The module that a network ends in: what it takes, what it returns, what it refuses."""
