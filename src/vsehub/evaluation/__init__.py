"""From an encoded split to its figures: protocols, folds, criteria."""
