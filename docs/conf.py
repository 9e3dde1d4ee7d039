"""The documentation site: `make docs` writes it to docs/_build/html."""

from importlib import metadata

project = "bft-replay"
author = copyright = "The bft-replay developers"  # noqa: A001 - as Sphinx calls it
version = release = metadata.version("bft-replay")

extensions = [
    "myst_nb",  # the pages, and the notebooks among them, which are executed
    "numpydoc",  # docstrings with parameters, units and errors
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_click",  # every command and option, from the program itself
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"bft-replay {release}"
html_static_path: list[str] = []

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "force"
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
