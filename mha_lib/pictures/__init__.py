"""Live pictures for notebooks and pages: the browser computes them, Python sees and sets every choice.

Needs anywidget and pillow: ``pip install mha-lib[widgets]``.
"""

from mha_lib.pictures.head_explorer import HeadExplorer
from mha_lib.pictures.layer_explorer import LayerExplorer
from mha_lib.pictures.live import LivePicture, save_html, script

__all__ = ["HeadExplorer", "LayerExplorer", "LivePicture", "save_html", "script"]
