"""Ranked lists of the columns of each row: choose a model, fit it, ask it."""
