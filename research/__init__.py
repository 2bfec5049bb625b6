"""Experiments beside the course: what each asks and found is in README.md. The library never imports them."""
