"""Settings of JupyterHub for a class of thirty, for an instructor to copy; a simulated class ran under them.

Put your own authenticator and spawner into it: the trial used others, with ports and folders of its own. The class's
folder, readable for all, is made once:

    .venv/bin/python -m ipykernel install --prefix=/srv/class                 the course's kernel, for every server
    MHA_CACHE=/srv/class/models .venv/bin/python -m tools.notebooks notebooks/07_*.ipynb    its trained model
    mkdir /srv/class/exchange && chmod 777 /srv/class/exchange                what goes to nbgrader and comes back
    cp -r notebooks /srv/class/notebooks && cd /srv/class/notebooks           what learners get:
    git init -b main && git add . && git commit -m "First edition"            a repository, here or on any host
    git config --system --add safe.directory /srv/class/notebooks/.git        (here: learners do not own it)
"""

import os
import sys
from urllib.parse import urlencode

c = get_config()  # type: ignore[name-defined]  # noqa: F821 - JupyterHub defines it
FOLDER = os.environ.get("CLASS_FOLDER", "/srv/class")
REPOSITORY = os.environ.get("CLASS_REPOSITORY", f"file://{FOLDER}/notebooks")

# When all come at once: how many servers start at a time, and after how many seconds the next one is to try again.
c.JupyterHub.concurrent_spawn_limit = 6
c.JupyterHub.spawn_throttle_retry_range = (5, 15)
c.Spawner.start_timeout = c.Spawner.http_timeout = 180  # seconds that a server may take to start, and to answer

# What one student may use. Docker, Kubernetes and systemd hold to it; local processes are not limited.
c.Spawner.mem_limit = "1.5G"  # a server, a kernel, and a second kernel that was left running
c.Spawner.cpu_limit = 1
c.Spawner.environment = {
    "OMP_NUM_THREADS": "1",  # the tensors are small: more threads only get into each other's way
    "MHA_CACHE": f"{FOLDER}/models",  # trained models, for all to read; what a student solves stays in the own home
    "JUPYTER_PATH": f"{FOLDER}/share/jupyter",
}
# A new server opens with nbgitpuller: it clones the repository, or merges its newest edition into what a learner has,
# whose changes win; then it opens the first notebook.
there = {"repo": REPOSITORY, "branch": "main", "targetpath": "notebooks"}
c.Spawner.default_url = f"/git-pull?{urlencode(there | {'urlpath': 'lab/tree/notebooks/00_start_here.ipynb'})}"

# A kernel that has done nothing for half an hour ends, and a server after an hour without anybody.
c.Spawner.args = [
    "--MappingKernelManager.cull_idle_timeout=1800",
    "--MappingKernelManager.cull_connected=True",
    "--MappingKernelManager.kernel_info_timeout=180",  # seconds that a kernel may take to start
]
c.JupyterHub.services = [
    {"name": "idle-culler", "command": [sys.executable, "-m", "jupyterhub_idle_culler", "--timeout=3600"]}
]
c.JupyterHub.load_roles = [
    {
        "name": "idle-culler",
        "scopes": ["list:users", "read:users:activity", "read:servers", "delete:servers"],
        "services": ["idle-culler"],
    }
]
