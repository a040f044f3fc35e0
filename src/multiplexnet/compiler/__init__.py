"""From formulas to what a layer is built of."""
