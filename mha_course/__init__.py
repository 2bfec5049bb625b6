"""What the notebooks add to mha_lib: models and their training, pictures, checks, exercises and the bug museum.

Each room is a package of its own: ``from mha_course import exercises, pictures``.
"""
