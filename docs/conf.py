"""The documentation site: `make docs` writes it to docs/_build/html."""

import sys
from importlib import metadata
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from tables import write_parts

project = "bft-replay"
author = copyright = "The bft-replay developers"  # noqa: A001 - as Sphinx calls it
version = release = metadata.version("bft-replay")

extensions = [
    "myst_nb",  # the pages, and the notebooks among them, which are executed
    "numpydoc",  # docstrings with parameters, units and errors
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_click",  # every command and option, from the program itself
    "sphinx_design",  # tabs, one for each scheduler
]
write_parts(Path(__file__).parent / "_build" / "parts")
exclude_patterns = ["_build"]
smartquotes = False  # --max-jobs stays what one types
html_theme = "furo"
html_title = f"bft-replay {release}"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_extra_path = ["example-evaluation.html"]  # as `evaluate` writes it

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_in_temp = True  # the clone stays as it is
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True

autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_member_order = "bysource"
autosummary_generate = True
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
default_role = "code"  # single backticks in docstrings are code, as in Markdown
add_module_names = False  # functions have the names by which they are called


def overview_as_code(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Keep the line breaks of the overview in the docstring of a package: its indented block is code."""
    block = next((at for at, line in enumerate(lines) if line.startswith("    ")), None)
    if what == "module" and block is not None:
        lines[block:block] = [".. code-block:: text", ""]


def setup(app: Any) -> None:
    """Sphinx calls this."""
    app.connect("autodoc-process-docstring", overview_as_code)
