"""What others check before they trust a project: workflows, licences, metadata that agree."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
if not WORKFLOWS:
    pytest.skip("an sdist leaves out hidden folders", allow_module_level=True)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def loaded(path: Path) -> dict[str, Any]:
    content = yaml.safe_load(path.read_text())
    assert isinstance(content, dict)
    return content


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_read_the_repository_and_nothing_else_by_default(
    path: Path,
) -> None:
    assert loaded(path)["permissions"] == {"contents": "read"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_to_a_commit_whose_release_is_named(path: Path) -> None:
    lines = [
        line for line in path.read_text().splitlines() if re.search(r"\buses:", line)
    ]
    for line in lines:
        assert re.search(r"uses: [\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+$", line), line


def test_only_named_jobs_may_write() -> None:
    writers = {
        (path.stem, name, scope)
        for path in WORKFLOWS
        for name, job in loaded(path)["jobs"].items()
        for scope, right in job.get("permissions", {}).items()
        if right == "write"
    }
    assert writers == {
        ("release", "build", "id-token"),
        ("release", "build", "attestations"),
        ("release", "publish", "id-token"),
        ("security", "codeql", "security-events"),
    }


def test_actions_and_packages_are_kept_up_to_date() -> None:
    updates = loaded(ROOT / ".github" / "dependabot.yml")["updates"]
    assert {update["package-ecosystem"] for update in updates} == {
        "github-actions",
        "pip",
    }


def test_each_python_that_the_package_names_is_tested() -> None:
    named = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    job = loaded(ROOT / ".github" / "workflows" / "tests.yml")["jobs"]["pythons"]
    assert (
        job["strategy"]["matrix"]["python"] == named == ["3.11", "3.12", "3.13", "3.14"]
    )


def test_version_licence_and_repository_are_the_same_in_all_metadata() -> None:
    citation = loaded(ROOT / "CITATION.cff")
    codemeta = json.loads((ROOT / "codemeta.json").read_text())
    repository = PROJECT["urls"]["Repository"]
    assert {PROJECT["version"], citation["version"], codemeta["version"]} == {
        PROJECT["version"]
    }
    assert {citation["repository-code"], codemeta["codeRepository"]} == {repository}
    assert codemeta["license"].endswith(f"/{PROJECT['license']}")
    assert citation["license"] == PROJECT["license"]


def test_the_licence_that_reuse_reads_is_the_licence() -> None:
    assert (ROOT / "LICENSES" / "MIT.txt").read_text() == (ROOT / "LICENSE").read_text()
    assert (ROOT / "REUSE.toml").is_file()


def test_the_repository_holds_no_binary_programs() -> None:
    suffixes = {
        ".so",
        ".exe",
        ".dll",
        ".dylib",
        ".a",
        ".o",
        ".class",
        ".jar",
        ".whl",
        ".pyc",
    }
    names = (
        "api",
        "milp",
        "models",
        "replay",
        "datasets",
        "benchmarks",
        "docs",
        "examples",
    )
    files = [
        file
        for name in names
        for file in (ROOT / name).rglob("*")
        if "__pycache__" not in file.parts
    ]
    assert not [
        file for file in files if file.suffix in suffixes and "_build" not in file.parts
    ]
