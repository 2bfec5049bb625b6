"""A release says what is not in order before it is made, and workflows call what is there and fixed."""

import email
import re
import shutil
import subprocess
import sys
import zipfile

import pytest
import yaml

from tools import address, release, try_wheel

ROOT = address.ROOT
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
OURS = "https://github.com/someone/course"
CHANGES = """## 3.1.4

New: [this](notebooks/A.md).

### More

[That](https://d2l.ai/a.md).

## 3.1.3

Old.
"""
PLACES = ["mha_lib/__init__.py", "mha_course/pyproject.toml", "CHANGELOG.md", "CITATION.cff", "pyproject.toml"]


@pytest.fixture
def ready(tmp_path):
    """A copy of what a release reads, in order for v3.1.4; it is called to replace a text in one of these files."""

    def replace(place, pattern, text):
        before = (tmp_path / place).read_text(encoding="utf-8")
        (tmp_path / place).write_text(re.sub(pattern, text, before, count=1, flags=re.MULTILINE), encoding="utf-8")

    for folder in ("mha_lib", "mha_course"):
        (tmp_path / folder).mkdir()
    for place in PLACES:
        shutil.copy(ROOT / place, tmp_path / place)
    replace("mha_lib/__init__.py", "^__version__ = .*", '__version__ = "3.1.4"')
    replace("mha_course/pyproject.toml", "^version = .*", 'version = "3.1.4"')
    replace("mha_course/pyproject.toml", 'mha-lib==[^"]*', "mha-lib==3.1.4")
    replace("CHANGELOG.md", "^## (.|\n)*", CHANGES)
    replace("CITATION.cff", "^version: .*", "version: 3.1.4")
    replace("pyproject.toml", '^Source = ".*"', f'Source = "{OURS}"')
    return replace


def test_the_notes_are_the_newest_section_and_what_is_in_order_may_go(ready, tmp_path):
    assert [*release.not_in_order(tmp_path), *release.not_in_order(tmp_path, "v3.1.4")] == []
    there = f"{OURS}/blob/v3.1.4/notebooks/A.md"
    assert release.notes(tmp_path) == f"New: [this]({there}).\n\n### More\n\n[That](https://d2l.ai/a.md).\n"


@pytest.mark.parametrize(
    ("place", "pattern", "text", "said"),
    [
        ("mha_lib/__init__.py", "3.1.4", "3.1.5", "The tag is v3.1.4, but .* version 3.1.5, whose tag is v3.1.5"),
        ("mha_lib/__init__.py", "3.1.4", "3.1.4.dev0", "3.1.4.dev0 is between releases: write 3.1.4 in mha_lib/__init"),
        ("mha_lib/__init__.py", "3.1.4", "3.1.3", "an older section 3.1.3: raise the version"),
        ("mha_course/pyproject.toml", '= "3.1.4', '= "3.1.5', "mha_course/pyproject.toml has 3.1.5: it needs 3.1.4"),
        ("mha_course/pyproject.toml", "==3.1.4", ">=3.1.4", "mha_course/pyproject.toml, dependencies has no version"),
        ("CITATION.cff", "3.1.4", "3.1.5", "CITATION.cff has 3.1.5: it needs 3.1.4, as mha_lib/__init__.py has it"),
        ("CITATION.cff", "^version.*\n", "", "CITATION.cff has no version"),
        ("CHANGELOG.md", "3.1.4", "Unreleased", 'begins with "## Unreleased": rename that to "## 3.1.4"'),
        ("CHANGELOG.md", "3.1.4\n", "3.1.4\n\n## 3.1.2\n", 'says nothing under "## 3.1.4"'),
        ("pyproject.toml", "/someone/", "/_owner_/", "Source in pyproject.toml is a placeholder"),
    ],
)
def test_what_is_not_in_order_is_said_with_its_remedy(ready, tmp_path, place, pattern, text, said):
    ready(place, pattern, text)
    assert re.search(said, "\n".join(release.not_in_order(tmp_path, "v3.1.4")))


def test_the_version_is_everywhere_the_same_whatever_is_still_to_do():
    assert set(release.versions().values()) == {release.version()}
    assert not re.search("older section|says nothing", "\n".join(release.not_in_order()))


def metadata(name, number):
    """What the wheel that was built last says of itself."""
    with zipfile.ZipFile(try_wheel.DIST / f"{name}-{number}-py3-none-any.whl") as wheel:
        return email.message_from_bytes(wheel.read(f"{name}-{number}.dist-info/METADATA"))


@pytest.mark.long
def test_the_dry_run_builds_what_would_be_released_and_says_what_is_left():
    dry_run = [sys.executable, "-m", "tools.release"]
    said = subprocess.run(dry_run, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    number = release.version()
    assert all(problem in said for problem in release.not_in_order())
    assert f"the release v{number.removesuffix('.dev0')} on" in said
    told = {name: metadata(name, number) for name in ("mha_lib", "mha_course")}
    assert {about["Version"] for about in told.values()} == {number}
    needs = {name: {each for each in told[name].get_all("Requires-Dist") if "extra" not in each} for name in told}
    assert needs == {"mha_lib": {"numpy", "safetensors", "torch>=2.6"}, "mha_course": {f"mha-lib=={number}"}}
    licences = {name: about["License-Expression"] for name, about in told.items()}
    assert licences == {"mha_lib": "MIT", "mha_course": "MIT AND CC-BY-4.0 AND OFL-1.1 AND Apache-2.0"}
    for about in told.values():  # an index shows a description without the files beside it
        assert len(about.get_payload()) > 300 and not re.search(r"\]\((?!https:)|src=", about.get_payload())
        assert len(about.get_all("Classifier")) > 5 and len(about.get_all("Project-URL")) == 3 and about["Author"]
    sizes = {path.name.partition("-")[0]: path.stat().st_size for path in try_wheel.DIST.glob("*.whl")}
    assert sizes["mha_lib"] <= 300_000 and len(sizes) == len([*try_wheel.DIST.glob("*.tar.gz")]) == 2
    assert (try_wheel.DIST / "notes.md").read_text(encoding="utf-8") == release.notes()
    refused = subprocess.run([*dry_run, "v0.0.1"], cwd=ROOT, capture_output=True, text=True)
    assert refused.returncode == 1 and "The tag is v0.0.1, but" in refused.stdout and "notes" not in refused.stdout


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_calls_what_is_there_and_actions_by_hashes_beside_tags(path):
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values()
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    steps = [step for job in jobs for step in job.get("steps", [job])]
    commands = "\n".join(step.get("run", "") for step in steps)
    assert set(re.findall(r"\bmake ([\w-]+)", commands)) <= targets
    local = [step["uses"] for step in steps if step.get("uses", "").startswith("./")]
    assert all((ROOT / name).exists() for name in [*local, *re.findall(r"^\.ci/\w+", commands, re.MULTILINE)])

    used = re.findall(r"uses: (?!\./)(.*)", path.read_text(encoding="utf-8"))
    assert [line for line in used if not re.fullmatch(r"[\w-]+/[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []


def test_no_checkout_leaves_credentials_behind():
    jobs = [job for path in WORKFLOWS for job in yaml.safe_load(path.read_text())["jobs"].values()]
    checkouts = [step for job in jobs for step in job.get("steps", []) if "actions/checkout@" in step.get("uses", "")]
    assert len(checkouts) >= 4
    assert all(step.get("with", {}).get("persist-credentials") is False for step in checkouts)
