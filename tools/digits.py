"""Write the images of the task "digits" anew: the test set of the UCI's handwritten digits, as scikit-learn has it.

    python -m pip install scikit-learn && python -m tools.digits

Source: Alpaydin and Kaynak 1998, "Optical Recognition of Handwritten Digits", UCI Machine Learning Repository,
https://doi.org/10.24432/C50P49, licence CC BY 4.0; unchanged, but for their type, bytes.
"""

from pathlib import Path

import numpy as np

FILE = Path(__file__).resolve().parents[1] / "mha_course" / "models" / "digits.npz"

if __name__ == "__main__":
    from sklearn.datasets import load_digits

    found = load_digits()
    np.savez_compressed(FILE, images=found.images.astype("uint8"), labels=found.target.astype("uint8"))
