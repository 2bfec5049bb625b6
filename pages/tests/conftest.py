"""The pages' Python is read here as it is on a page: by the names of its files."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]
