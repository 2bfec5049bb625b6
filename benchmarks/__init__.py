"""The layer beside its peers: speed, memory, time to import. ``python -m benchmarks`` runs all, a subset by default."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tools"))  # whose modules import one another by bare names
