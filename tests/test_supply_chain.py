"""What others check before they trust a project, and zizmor and reuse (`make audit`) do not: metadata that agree."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_each_python_that_the_package_names_is_tested() -> None:
    workflow = ROOT / ".github" / "workflows" / "tests.yml"
    if not workflow.exists():
        pytest.skip("an sdist leaves out hidden folders")
    job = yaml.safe_load(workflow.read_text())["jobs"]["pythons"]
    named = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    assert job["strategy"]["matrix"]["python"] == named


def test_version_licence_and_repository_are_the_same_in_all_metadata() -> None:
    citation: dict[str, Any] = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    codemeta = json.loads((ROOT / "codemeta.json").read_text())
    repository = PROJECT["urls"]["Repository"]
    assert citation["version"] == codemeta["version"] == PROJECT["version"]
    assert citation["repository-code"] == codemeta["codeRepository"] == repository
    assert codemeta["license"].endswith(f"/{PROJECT['license']}")
    assert citation["license"] == PROJECT["license"]
    texts = [(ROOT / name).read_text() for name in ("LICENSE", "LICENSES/MIT.txt")]
    assert texts[0] == texts[1]
