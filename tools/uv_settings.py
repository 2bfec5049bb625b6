"""What pip is told on this machine, said to uv, which reads no setting of pip's: with it, uv takes the same packages.

The syntax is Python 3.6's, as in install.py.
"""

import ast
import os

# pip's setting: uv's variables of the environment. Those of NAMES may be several, which pip separates by white space.
SOURCES = {
    "cert": ["SSL_CERT_FILE"],
    "client-cert": ["SSL_CLIENT_CERT"],
    "default-timeout": ["UV_HTTP_TIMEOUT"],
    "extra-index-url": ["UV_INDEX"],
    "find-links": ["UV_FIND_LINKS"],
    "index-url": ["UV_DEFAULT_INDEX"],
    "proxy": ["HTTP_PROXY", "HTTPS_PROXY"],
    "timeout": ["UV_HTTP_TIMEOUT"],
    "trusted-host": ["UV_INSECURE_HOST"],
}
NAMES = {"extra-index-url": " ", "find-links": ",", "trusted-host": " "}  # how uv separates them
# How pip speaks and where it keeps things: nothing that decides what is installed.
HARMLESS = {
    "break-system-packages", "cache-dir", "config-file", "disable-pip-version-check", "log", "no-cache-dir", "no-color",
    "no-input", "no-python-version-warning", "no-warn-script-location", "progress-bar", "quiet", "require-virtualenv",
    "retries", "root-user-action", "verbose",
}  # fmt: skip


def read(listed):
    """pip's settings for an install, by name, from what `pip config list` prints: later sources win, as in pip."""
    sections = {"global": {}, "install": {}, ":env:": {}}
    for line in listed.splitlines():
        place, _, value = line.partition("=")
        section, _, name = place.rpartition(".")
        if section in sections:
            sections[section][name] = ast.literal_eval(value)
    return dict(item for section in sections.values() for item in section.items())


def translate(settings):
    """What uv must be told: its environment, arguments of `uv pip install`, and the settings that it has no word for.

    uv's own settings, for other projects, do not count, but for the place of its cache.
    """
    environment = {name: value for name, value in os.environ.items() if name[:3] != "UV_" or name == "UV_CACHE_DIR"}
    # pip compares all indexes, and takes the newest; uv by itself would stop at the first that has the package.
    environment.update(UV_NO_CONFIG="1", UV_INDEX_STRATEGY="unsafe-best-match")
    for other in ("CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"):  # of pip's own reading; the later one counts
        if environment.get(other):
            environment["SSL_CERT_FILE"] = environment[other]
    arguments, unknown = [], []
    for name, value in settings.items():
        if name in SOURCES:
            value = NAMES[name].join(value.split()) if name in NAMES else value
            environment.update((variable, value) for variable in SOURCES[name])
        elif name == "constraint":
            arguments += [word for path in value.split() for word in ("--constraint", path)]
        elif name in ("no-index", "pre"):
            if value.lower() in ("1", "on", "true", "y", "yes", "t"):
                arguments += {"no-index": ["--no-index"], "pre": ["--prerelease", "allow"]}[name]
        elif name not in HARMLESS:
            unknown.append(name)
    return environment, arguments, unknown


def step(arguments):
    """Arguments of a `pip install` as uv takes them: there the older name of this one yields to the environment."""
    return ["--default-index" if word == "--index-url" else word for word in arguments]
