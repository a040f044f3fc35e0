"""Maps into sets whose walls are known at run time: bounds from inputs, from outputs, from functions."""
