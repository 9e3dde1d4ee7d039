"""The output of a page's commands: `python tests/shown.py docs/tutorial.md ...` writes it into the page.

`python tests/shown.py docs/example-evaluation.html` writes the page of `make demo`.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from processes import AMPLE_S

ROOT = Path(__file__).parents[1]


def printed(command: str, folder: Path) -> str:
    """Standard output of a command of a shell, in a folder."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "LC_ALL": "C.UTF-8",
        "PYTHONIOENCODING": "utf-8",
    }
    done = subprocess.run(
        ["sh", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=AMPLE_S,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stderr}"
    return done.stdout


def evaluation_of_the_demo(folder: Path) -> str:
    """The page that `evaluate` writes in `make demo`, made in an empty folder."""
    shutil.copytree(ROOT / "examples", folder / "examples")
    makefile = (ROOT / "Makefile").read_text("utf-8")
    command = re.search(r"^\t\$\(BIN\)/(bft-replay evaluate (?:.*\\\n)*.*)$", makefile, re.MULTILINE)  # fmt: skip
    page = printed(command[1], folder).splitlines()[-1]
    return (folder / page).read_text("utf-8")


def refreshed(text: str, folder: Path) -> str:
    """The text of a page with what its console blocks print, run one after the other in an empty folder.

    A `code-block` with a caption is a file of that name. What standard error says is not shown.
    """
    shutil.copytree(ROOT / "examples", folder / "examples")

    def block(match: re.Match[str]) -> str:
        kind, content = match[1], match[2]
        if kind.startswith("{code-block}"):
            caption = re.search(r"^:caption: (\S+)$", content, flags=re.MULTILINE)
            (folder / caption[1]).write_text(
                re.sub(r"^:.*\n+", "", content, flags=re.MULTILINE)
            )
        if kind != "console":
            return match[0]
        shown = ""
        for command in re.findall(r"^\$ ((?:.*\\\n)*.*)$", content, flags=re.MULTILINE):
            shown += f"$ {command}\n{printed(command, folder).strip(chr(10))}\n"
        return f"```console\n{shown}```"

    return re.sub(
        r"^```([^\n]*)\n(.*?)^```$", block, text, flags=re.DOTALL | re.MULTILINE
    )


if __name__ == "__main__":
    for name in sys.argv[1:]:
        page = Path(name)
        with tempfile.TemporaryDirectory() as scratch:
            if page.suffix == ".html":
                page.write_text(evaluation_of_the_demo(Path(scratch)), "utf-8")
            else:
                page.write_text(
                    refreshed(page.read_text("utf-8"), Path(scratch)), "utf-8"
                )
