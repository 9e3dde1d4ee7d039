"""Get the reference data that have a public address, and check them (sources: benchmarks/README.md).

python -m benchmarks.data --check          each file that tests and benchmarks use: there, absent, or another content
python -m benchmarks.data --fetch NAME     download NAME's repository, and put what we use into its folder
python -m benchmarks.data --fetch NAME --from FOLDER    the same from a folder in which its commit is checked out
python -m benchmarks.data --fetch NAME --run PYTHON     also runs its program, for the results that are reference data

`data.sha256` lists each file with the SHA-256 of its content, of a .gz file that of what it unpacks to.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks._derived import (
    DERIVED,
    Contents,
    Derivation,
    bftrainer_results,
    tiresias_results,
)
from benchmarks._tables import program

LIST = Path(__file__).with_suffix(".sha256")
# A program's results, one by one: our name and the content. Given are the folder of the repository, that of our
# reference data, and the interpreter.
Program = Callable[[Path, Path, str], Iterator[tuple[str, bytes]]]


@dataclass(frozen=True, slots=True)
class Source:
    """A public repository.

    Parameters
    ----------
    url, commit
        Its address, and the commit that was read.
    folders
        Which of its folders become which of ours, in this order.
    derived
        Files of ours that are computed from its files: a function of these, by a pattern of our name.
    program, needs
        What makes other files of ours, and what its interpreter has to have.
    """

    url: str
    commit: str
    folders: tuple[tuple[str, str], ...]
    derived: Mapping[str, Derivation] = field(default_factory=dict)
    program: Program | None = None
    needs: str = ""

    def made(self, ours: str, contents: Contents) -> Iterator[bytes]:
        """What a file of ours may be: what is computed, or files of the repository, unpacked ones too."""
        for pattern, derive in self.derived.items():
            if known := re.fullmatch(pattern, ours):
                yield derive(known, contents)
        for theirs, folder in self.folders:
            if ours.startswith(folder):
                path = theirs + ours.removeprefix(folder)
                for name in (path, path.removesuffix(".gz")):
                    try:
                        yield contents(name)
                    except FileNotFoundError:
                        continue


SOURCES = {
    "bftrainer": Source(
        "https://github.com/BFTrainer/Replayer",
        "515f0e500e34e4cc18e753b64ed000dd7b15f2ad",
        (("dataset/", "bftrainer/"),),
        program=bftrainer_results,
        needs="Python 3.8 to 3.11 with pandas<2, numpy<1.24, scipy, h5py and gurobipy",
    ),
    "tiresias": Source(
        "https://github.com/SymbioticLab/Tiresias",
        "959f9b08f44fa1b4f2b3aed79b01e4d439264a94",
        (("simulator/", "tiresias/"), ("", "tiresias/")),
        DERIVED["tiresias"],
        tiresias_results,
        "Python 2.7 with numpy",
    ),
    "lucid": Source(
        "https://github.com/S-Lab-System-Group/Lucid",
        "63685a3ab7d15d8e940bb47ef98b6d5cca472b13",
        (
            ("", "lucid/"),
            ("simulation/analyzer/", "lucid/"),
            ("simulation/data/", "lucid/"),
            ("simulation/data/Venus/", "lucid/"),
            ("simulation/estimator/ebm/", "lucid/"),
            ("simulation/estimator/lgb/", "lucid/"),
            ("simulation/predictor/", "lucid/"),
        ),
    ),
    "lucid-results": Source(
        "https://github.com/RayminL/2024Fall-SYSU-CSE-ACA",
        "67c0f4c4317a3cb722ebca1253309bfa51f571b9",
        (),
        DERIVED["lucid-results"],
    ),
    "pollux": Source(
        "https://github.com/petuum/adaptdl",
        "c793c7089bd307462686339d29707925c461f9a9",
        (
            ("sched/traces/", "pollux/traces/"),
            ("benchmark/workloads/", "pollux/workloads/"),
            ("simulator/", "pollux/"),
        ),
        DERIVED["pollux"],
    ),
    "sia": Source(
        "https://github.com/siasosp23/artifacts",
        "aaf7a0de7b6cb5eab06ea020467ede5d2fd18e70",
        (
            ("sia-simulator/workloads/", "sia/workloads/"),
            ("sia-simulator/traces/gpt_pmp/", "sia/profiles/gpt_pmp-"),
        ),
    ),
    "elasticflow": Source(
        "https://github.com/pkusys/ElasticFlow",
        "04a0109a6acdd7d89f4cb31b6a6a7a128bee6bb0",
        (("ElasticFlow/scheduler/", "elasticflow/"),),
    ),
    "shockwave": Source(
        "https://github.com/uw-mad-dash/shockwave",
        "8a44f4a27a45760520386809b695d51b665b3679",
        (("LICENSE", "shockwave/LICENSE"),),
        DERIVED["shockwave"],
    ),
}


def packed(name: str) -> bool:
    """Whether a file is compressed, and the list has the SHA-256 of what is in it."""
    return name.endswith(".gz") and not name.endswith(".tar.gz")


def listed() -> dict[str, str]:
    """The SHA-256 of each file that tests and benchmarks use, by its name in the folder."""
    lines = (line.split("  ", 1) for line in LIST.read_text().splitlines())
    return {name: expected for expected, name in lines}


def state_of(path: Path, expected: str) -> str:
    """Whether a file is there: same, different or absent."""
    if not path.is_file():
        return "absent"
    content = path.read_bytes()
    try:
        content = gzip.decompress(content) if packed(path.name) else content
    except (OSError, EOFError):  # a .gz file that cannot be unpacked
        return "different"
    return "same" if hashlib.sha256(content).hexdigest() == expected else "different"


def check(folder: Path, top: str = "") -> Counter[str]:
    """Print each file that is absent or different; return the number of files by state."""
    states: Counter[str] = Counter()
    for name, expected in listed().items():
        if name.startswith(top):
            state = state_of(folder / name, expected)
            states[state] += 1
            if state != "same":
                print(f"{state:<10}{name}")
    print(dict(states))
    return states


def downloaded(name: str, scratch: Path) -> Path:
    """Download a repository at its commit: its folder.

    Raises
    ------
    SystemExit
        When it cannot be reached; says what to do.
    """
    import pooch  # here: a check needs no extra

    source = SOURCES[name]
    pooch.get_logger().setLevel("WARNING")
    try:
        # Archives of a commit have no SHA-256 of their own; each file that we take has one.
        unpack = pooch.Untar(extract_dir="tree")
        address = f"{source.url}/archive/{source.commit}.tar.gz"
        pooch.retrieve(address, None, path=scratch, processor=unpack)
    except OSError as error:  # those of requests are, too
        raise SystemExit(
            f"{name}: {source.url} cannot be reached ({error}).\n"
            f"Where there is a network: git clone {source.url} && git -C CLONE checkout {source.commit}\n"
            f"Then here: python -m benchmarks.data --fetch {name} --from CLONE"
        ) from None
    (tree,) = (scratch / "tree").iterdir()
    return tree


def fetch(
    name: str, folder: Path, clone: str | None = None, run: str | None = None
) -> None:
    """Put those files of a source that are absent into `folder`, if they have the SHA-256 of the list.

    Parameters
    ----------
    name
        One of `SOURCES`.
    folder
        That of the reference data.
    clone
        A folder in which the repository is checked out; None: it is downloaded.
    run
        An interpreter for its program, which then makes the results that are absent; None: it does not run.

    Raises
    ------
    SystemExit
        When the repository cannot be reached, or its program fails or gives another result.
    """
    source = SOURCES[name]
    absent = {
        ours: expected
        for ours, expected in listed().items()
        if ours.split("/")[0] == name.split("-")[0] and not (folder / ours).exists()
    }
    with TemporaryDirectory() as scratch:
        tree = Path(clone) if clone else downloaded(name, Path(scratch))

        def contents(path: str) -> bytes:
            return (tree / path).read_bytes()

        for ours in list(absent):
            for content in source.made(ours, contents):
                if hashlib.sha256(content).hexdigest() == absent[ours]:
                    place(folder / ours, content)
                    del absent[ours]
                    break
        if run and source.program and absent:
            # It writes into its folder.
            own = shutil.copytree(tree, Path(scratch) / "own")
            try:
                for ours, content in source.program(own, folder, run):
                    found = hashlib.sha256(content).hexdigest()
                    if found != absent.get(ours, found):
                        raise RuntimeError(f"{ours} is another one")
                    if ours in absent:
                        place(folder / ours, content)
            except (RuntimeError, OSError) as error:
                raise SystemExit(f"{source.url}: its program needs {source.needs}: {error}") from None  # fmt: skip


def place(target: Path, content: bytes) -> None:
    """Write a file of ours."""
    target.parent.mkdir(parents=True, exist_ok=True)
    whole = gzip.compress(content, mtime=0) if packed(target.name) else content
    target.write_bytes(whole)


def main() -> int:
    """Fetch, and check; 1 where a file is different, or with --check absent."""
    parser = program(__doc__)
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--check", action="store_true", help="compare the files with the list")  # fmt: skip
    group.add_argument("--fetch", metavar="NAME", choices=SOURCES, help="a source")
    parser.add_argument("--from", dest="clone", metavar="FOLDER", help="with --fetch")
    parser.add_argument("--run", metavar="PYTHON", help="with --fetch: its program")
    given = parser.parse_args()
    if not os.environ.get("BFT_REFERENCE"):
        parser.error("set BFT_REFERENCE to the folder that holds the data: benchmarks/README.md")  # fmt: skip
    folder = Path(os.environ["BFT_REFERENCE"])
    if given.check:
        return int(set(check(folder)) != {"same"})
    fetch(given.fetch, folder, given.clone, given.run)
    return int("different" in check(folder, given.fetch.split("-")[0] + "/"))


if __name__ == "__main__":
    sys.exit(main())
