"""The languages of the course beside English, as ``translations/languages.toml`` has them."""

import tomllib
from pathlib import Path

CATALOGUES = Path(__file__).resolve().parents[1] / "translations"
LANGUAGES = tomllib.loads((CATALOGUES / "languages.toml").read_text(encoding="utf-8"))
