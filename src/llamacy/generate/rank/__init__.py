"""Scores of a classification head: of pairs of a query and a document, and of texts."""
