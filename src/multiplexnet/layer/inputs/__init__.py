"""The inputs of a layer: their ranges, what is assumed of them, and the tensors that stand for what was given."""
