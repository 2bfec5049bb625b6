"""A course held with nbgrader and JupyterHub: settings to copy, and trials of them. The library never imports it."""
