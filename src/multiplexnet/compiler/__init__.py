"""From formulas to independent blocks of terms, with a proof that the terms say what the rules say."""
