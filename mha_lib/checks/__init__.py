"""Checks of the exercises: each says whether an answer is right and, if not, which mistake it looks like."""
