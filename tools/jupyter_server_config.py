"""Settings of JupyterLab's server: what opening a notebook adds to it is not saved.

JupyterLab notes in an open notebook which version of Python its kernel has, and that it holds no widgets yet. Saved
with it, this would change every notebook that was only looked at. tools/install.py copies this file into an
environment, so that it holds for every lab that is started from there, by hand too.
"""

import json
from pathlib import Path

WIDGETS = "application/vnd.jupyter.widget-state+json"


def leave_out_what_opening_adds(model, path, contents_manager, **_):
    """Keep what the file says of its language, and leave out an empty list of widgets; all else is saved as it is."""
    if model["type"] != "notebook":
        return
    metadata = model["content"]["metadata"]
    if not metadata.get("widgets", {}).get(WIDGETS, {}).get("state"):
        metadata.pop("widgets", None)
    file = Path(contents_manager.root_dir, path.strip("/"))
    saved = json.loads(file.read_bytes())["metadata"].get("language_info") if file.exists() else None
    if saved and saved["name"] == metadata.get("language_info", saved)["name"]:
        metadata["language_info"] = saved


c = get_config()  # noqa: F821 - Jupyter defines it
c.FileContentsManager.pre_save_hook = leave_out_what_opening_adds
