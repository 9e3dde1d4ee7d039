"""Measure how dense and how entangled the code is: `python tests/code_metrics.py [--list]`.

The figures are those that a large change is judged by. `--list` also names the modules with a single importer, the
docstrings that cannot be understood alone, and the modules of each circle of imports.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import networkx as nx

ROOT = Path(__file__).parents[1]
PACKAGES = {
    "api": "bft",
    "milp": "bft.milp",
    "models": "bft.models",
    "datasets": "bft.datasets",
    "replay": "bft.replay",
}
CROWDED = (
    "bft.replay.logs",
    "bft.replay.engine",
)  # packages whose inner imports are counted
VAGUE_STARTS = ("Of ", "As ", "The same", "Those", "What ", "That ")
SHORT = 3  # words: a first sentence of that many or fewer must name something of the signature
NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}

Documented = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Module:
    """A product module: its dotted name, its path and its syntax tree."""

    def __init__(self, folder: str, path: Path) -> None:
        inside = path.relative_to(ROOT / folder).with_suffix("").parts
        self.folder = folder
        self.path = path
        self.name = ".".join((PACKAGES[folder], *inside)).removesuffix(".__init__")
        self.source = path.read_text("utf-8")
        self.tree = ast.parse(self.source)

    @property
    def package(self) -> str:
        """The package that relative imports of this module start from."""
        if self.path.name == "__init__.py":
            return self.name
        return self.name.rpartition(".")[0]


def product_modules() -> list[Module]:
    """Return all modules that users install."""
    modules = []
    for folder in PACKAGES:
        for path in sorted((ROOT / folder).glob("**/*.py")):
            modules.append(Module(folder, path))
    return modules


def docstring_node(node: ast.AST) -> ast.Expr | None:
    """Return the statement that is the docstring of a module, class or function."""
    if not isinstance(node, ast.Module | Documented) or not node.body:
        return None
    first = node.body[0]
    if (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    ):
        return first
    return None


def code_lines(module: Module) -> int:
    """Count the lines of a module without blank lines, comments and docstrings."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(module.source).readline):
        if token.type not in NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(module.tree):
        docstring = docstring_node(node)
        if docstring is not None:
            lines.difference_update(
                range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1)
            )
    return len(lines)


def nodes_per_line(modules: list[Module]) -> float:
    """Return the syntax nodes a line of code of some modules."""
    nodes = sum(1 for module in modules for _ in ast.walk(module.tree))
    return nodes / max(1, sum(code_lines(module) for module in modules))


def statements(modules: list[Module]) -> int:
    """Count all statements, docstrings among them."""
    return sum(
        isinstance(node, ast.stmt)
        for module in modules
        for node in ast.walk(module.tree)
    )


def imports_of(module: Module, known: set[str]) -> set[str]:
    """Return the product modules that a module imports anywhere: at its top, in functions, under TYPE_CHECKING."""
    found: set[str] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = source_of(node, module)
            for alias in node.names:
                part = f"{source}.{alias.name}"
                found.add(part if part in known else source)
    return found & known - {module.name}


def source_of(node: ast.ImportFrom, module: Module) -> str:
    """Return the absolute name of the module that `from … import` names."""
    if not node.level:
        return node.module or ""
    parts = module.package.split(".")
    base = ".".join(parts[: len(parts) - node.level + 1])
    return f"{base}.{node.module}" if node.module else base


def import_graph(modules: list[Module]) -> nx.DiGraph[str]:
    """Return the graph with an arrow from each module to those that it imports."""
    known = {module.name for module in modules}
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(sorted(known))
    for module in modules:
        graph.add_edges_from(
            (module.name, other) for other in sorted(imports_of(module, known))
        )
    return graph


def words_of(text: str) -> set[str]:
    """Return the words of a text or a name in lower case, without a plural's s."""
    found = re.findall(r"[A-Za-z]{3,}", text.replace("_", " "))
    return {word.lower().rstrip("s") for word in found}


def signature_words(node: Documented) -> set[str]:
    """Return the words of a name, of its parameters and of their types."""
    if isinstance(node, ast.ClassDef):
        return words_of(node.name)
    parts = [node.name, ast.unparse(node.args)]
    if node.returns is not None:
        parts.append(ast.unparse(node.returns))
    return words_of(" ".join(parts))


def is_unclear(node: Documented, docstring: str) -> bool:
    """Tell whether the first sentence of a docstring needs another one to be understood."""
    first = re.split(r"(?<=[.!?:;])\s", docstring, maxsplit=1)[0]
    if first.startswith(VAGUE_STARTS):
        return True
    return len(first.split()) <= SHORT and not words_of(first) & signature_words(node)


def documented(modules: list[Module]) -> Iterator[tuple[str, Documented, str]]:
    """Yield the place, the syntax node and the docstring of each documented class and function."""
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, Documented):
                docstring = ast.get_docstring(node)
                if docstring:
                    yield (
                        f"{module.path.relative_to(ROOT)}:{node.lineno}",
                        node,
                        docstring,
                    )


def word_count(text: str) -> int:
    """Count the parts of a text between blanks that have a letter or a digit: `|`, `##` and `=` are no words."""
    return sum(re.search(r"[^\W_]", part) is not None for part in text.split())


def words_in_pages() -> tuple[int, int]:
    """Count the words (as `word_count` does) of docs/ alone and with README and CONTRIBUTING.

    All of a page counts: tables, code blocks, markers in comments, and the pages of docs/decisions/.
    The built site does not.
    """
    pages = [
        path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts
    ]
    docs = sum(word_count(path.read_text("utf-8")) for path in pages)
    front = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    return docs, docs + sum(word_count(path.read_text("utf-8")) for path in front)


def print_density(modules: list[Module]) -> None:
    """Print syntax nodes a line of code, of all modules and of each folder."""
    print(
        f"{nodes_per_line(modules):8.2f}  syntax nodes a line of code ({sum(map(code_lines, modules)):,} lines)"
    )
    for folder in PACKAGES:
        print(
            f"{nodes_per_line([module for module in modules if module.folder == folder]):8.2f}    {folder}/"
        )


def print_imports(graph: nx.DiGraph[str], with_list: bool) -> None:
    """Print single importers, imports inside crowded packages, circles, and imports of the command line."""
    single = [name for name in graph if graph.in_degree(name) == 1]
    print(f"{len(single):8,}  of them with a single importer")
    if with_list:
        for name in single:
            print(f"          {name} <- {next(iter(graph.predecessors(name)))}")
    for package in CROWDED:
        inside = graph.subgraph(
            [name for name in graph if f"{name}.".startswith(f"{package}.")]
        )
        print(
            f"{len(inside):8,}  modules in {package}, {inside.number_of_edges()} imports between them"
        )
    circles = [
        sorted(circle)
        for circle in nx.strongly_connected_components(graph)
        if len(circle) > 1
    ]
    print(
        f"{len(circles):8,}  circles of imports (also inside functions and under TYPE_CHECKING)"
    )
    if with_list:
        for circle in sorted(circles):
            print(f"          {', '.join(circle)}")
    command_line = "bft.replay.cli"
    upwards = [arrow for arrow in graph.edges if arrow[1].startswith(command_line)]
    upwards = [arrow for arrow in upwards if not arrow[0].startswith(command_line)]
    print(f"{len(upwards):8,}  imports of the command line by the library")
    if with_list:
        for importer, imported in upwards:
            print(f"          {importer} -> {imported}")


def print_docstrings(modules: list[Module], with_list: bool) -> None:
    """Print how many first sentences of docstrings cannot be understood alone."""
    all_of_them = list(documented(modules))
    unclear = [
        (place, text) for place, node, text in all_of_them if is_unclear(node, text)
    ]
    print(
        f"{len(unclear):8,}  of {len(all_of_them):,} docstrings whose first sentence cannot be understood alone"
    )
    if with_list:
        for place, text in unclear:
            print(f"          {place}: {text.splitlines()[0]}")


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument(
        "--list", action="store_true", help="name modules and docstrings too"
    )
    with_list = parser.parse_args().list
    modules = product_modules()
    print_density(modules)
    print(f"{statements(modules):8,}  statements")
    print(f"{len(modules):8,}  product modules")
    print_imports(import_graph(modules), with_list)
    print_docstrings(modules, with_list)
    docs, with_front = words_in_pages()
    print(f"{docs:8,}  words in docs/ ({with_front:,} with README and CONTRIBUTING)")


if __name__ == "__main__":
    main()
