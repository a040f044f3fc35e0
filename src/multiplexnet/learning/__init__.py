"""Learning with rules: estimators, densities, labels from rules alone, baselines."""
