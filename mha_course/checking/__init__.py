"""What checks an answer without knowing the exercise: runs it safely, compares, names the mistake, keeps the record."""
