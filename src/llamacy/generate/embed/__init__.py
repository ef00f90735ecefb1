"""Vectors of texts: what callers give, how it is shared out over batches, what they get."""
