"""The campaign: random rules on the whole road, from text to floats, judged by code that shares nothing with it."""
