"""Get the reference data that have a public address, and check them (sources: benchmarks/README.md).

python -m benchmarks.data --check          each file that tests and benchmarks use: there, absent, or another content
python -m benchmarks.data --fetch NAME     clone NAME's repository at its commit, and put what we use into its folder
python -m benchmarks.data --fetch NAME --from CLONE     the same from a clone that is there already
python -m benchmarks.data --fetch NAME --run PYTHON     also runs its program, for the results that are reference data
python -m benchmarks.data --write          make the list anew from the folder that BFT_REFERENCE names

`data.sha256` lists each file with the SHA-256 of its content, of a .gz file that of what it unpacks to.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks._derived import DERIVED, PROGRAMS, Contents, Derivation, Program

LIST = Path(__file__).with_suffix(".sha256")


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
    program
        What makes other files of ours.
    """

    url: str
    commit: str
    folders: tuple[tuple[str, str], ...]
    derived: Mapping[str, Derivation] = field(default_factory=dict)
    program: Program | None = None

    def candidates(self, name: str) -> list[str]:
        """Paths in the repository at which a file of ours may lie; .gz files are often unpacked there."""
        found = []
        for theirs, ours in self.folders:
            if name.startswith(ours):
                path = theirs + name.removeprefix(ours)
                found += [path, path.removesuffix(".gz")]
        return list(dict.fromkeys(found))


SOURCES = {
    "bftrainer": Source(
        "https://github.com/BFTrainer/Replayer",
        "515f0e500e34e4cc18e753b64ed000dd7b15f2ad",
        (("dataset/", "bftrainer/"),),
        program=PROGRAMS["bftrainer"],
    ),
    "tiresias": Source(
        "https://github.com/SymbioticLab/Tiresias",
        "959f9b08f44fa1b4f2b3aed79b01e4d439264a94",
        (("simulator/", "tiresias/"), ("", "tiresias/")),
        DERIVED["tiresias"],
        PROGRAMS["tiresias"],
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


class FetchError(RuntimeError):
    """A repository that cannot be had; says what to do."""


def content_digest(content: bytes, name: str) -> str:
    """SHA-256 of a file's content, unpacked if its name ends in .gz (but for archives)."""
    packed = name.endswith(".gz") and not name.endswith(".tar.gz")
    return hashlib.sha256(gzip.decompress(content) if packed else content).hexdigest()


def digest(path: Path) -> str:
    """SHA-256 of the content of a file."""
    return content_digest(path.read_bytes(), path.name)


def listed() -> dict[str, str]:
    """The digest of each file that tests and benchmarks use, by its name in the folder."""
    lines = LIST.read_text().splitlines()
    return {
        name: expected for expected, name in (line.split("  ", 1) for line in lines)
    }


def state_of(path: Path, expected: str) -> str:
    """Whether a file is there: same, different or absent."""
    if not path.is_file():
        return "absent"
    try:
        return "same" if digest(path) == expected else "different"
    except (OSError, EOFError):  # a .gz file that cannot be unpacked
        return "different"


def check(folder: Path) -> int:
    """Print one line per folder, and each file that is absent or different; return 1 if there is one."""
    states: dict[str, Counter[str]] = {}
    for name, expected in listed().items():
        state = state_of(folder / name, expected)
        states.setdefault(name.split("/")[0], Counter())[state] += 1
        if state != "same":
            print(f"{state:<10}{name}")
    for top, counts in states.items():
        print(
            f"{top:<12}"
            + ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
        )
    return int(any(set(counts) != {"same"} for counts in states.values()))


def git(folder: str | Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run git in a folder, without asking for passwords."""
    return subprocess.run(
        ["git", "-C", str(folder), *arguments],  # noqa: S607 - the user's git
        capture_output=True,
        check=False,
        env={**os.environ, "GIT_TERMINAL_PROMPT": "0"},
    )


def cloned(name: str, source: Source, target: str) -> None:
    """Fetch one commit of a repository into an empty folder.

    Raises
    ------
    FetchError
        When it cannot be reached.
    """
    git(target, "init", "--quiet")
    done = git(target, "fetch", "--quiet", "--depth", "1", source.url, source.commit)
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip().splitlines()
        raise FetchError(
            f"{name}: {source.url} cannot be reached ({reason[-1] if reason else 'git failed'}).\n"
            f"Where there is a network: git clone {source.url} && git -C CLONE checkout {source.commit}\n"
            f"Then here: python -m benchmarks.data --fetch {name} --from CLONE"
        )


def fetch(
    name: str, folder: Path, clone: str | None = None, run: str | None = None
) -> int:
    """Put the files of a source into `folder`; return 1 if one of its public files is not what we measured with.

    Files that are there and right stay; those that are there and different are not replaced.

    Parameters
    ----------
    name
        One of `SOURCES`.
    folder
        That of the reference data.
    clone
        A clone of the repository that has the commit; None: it is fetched.
    run
        An interpreter for its program, which then makes the results that are absent; None: it does not run.

    Raises
    ------
    FetchError
        When the repository cannot be reached, or the clone lacks the commit.
    """
    source = SOURCES[name]
    with TemporaryDirectory() as scratch:
        if clone is None:
            cloned(name, source, scratch)
        repository = scratch if clone is None else clone
        tree = git(repository, "ls-tree", "-r", "--name-only", "-z", source.commit)
        if tree.returncode:
            raise FetchError(f"{name}: {repository} does not have {source.commit}")
        paths = set(tree.stdout.decode().split("\0"))

        @cache
        def contents(path: str) -> bytes:
            return git(repository, "show", f"{source.commit}:{path}").stdout

        counts: Counter[str] = Counter()
        absent = {}
        for ours, expected in listed().items():
            if ours.split("/")[0] != name.split("-")[0]:
                continue
            target = folder / ours
            state = state_of(target, expected)
            if state == "same":
                counts["there already"] += 1
            elif state == "different":
                print(f"different {target}: not replaced")
                counts["there with another content (!)"] += 1
            else:
                theirs = [path for path in source.candidates(ours) if path in paths]
                found = _found(ours, expected, contents, source, theirs)
                if found is None:
                    absent[ours] = expected
                else:
                    place(target, found)
                    counts["fetched"] += 1
        if run and source.program and absent:
            made = _made(source, repository, folder, run, absent)
            counts["made by its program"] += made
        elif source.program and absent:
            print(
                f"--run PYTHON makes more of them with its program: {source.program.needs}"
            )
        counts["not in this repository; see benchmarks/README.md"] += sum(
            not (folder / ours).exists() for ours in absent
        )
    for state, count in sorted(counts.items()):
        print(f"{count:>5} {state}")
    return int(any(state.endswith("(!)") for state in counts))


def place(target: Path, content: bytes) -> None:
    """Write a file of ours."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)


def _made(
    source: Source,
    repository: str | Path,
    folder: Path,
    run: str,
    absent: Mapping[str, str],
) -> int:
    """Run the program of a source, and place those of its results that are absent; return how many.

    Raises
    ------
    FetchError
        When it fails, or a result is not the one that we measured with.
    """
    assert source.program is not None
    count = 0
    with TemporaryDirectory() as checkout:
        archive = git(repository, "archive", "--format=tar", source.commit)
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            files.extractall(checkout, filter="data")
        try:
            for ours, content in source.program.results(Path(checkout), folder, run):
                if ours not in absent:
                    continue
                if hashlib.sha256(content).hexdigest() != absent[ours]:
                    raise FetchError(
                        f"{ours}: the program gives another result; it needs {source.program.needs}"
                    )
                packed = ours.endswith(".gz")
                place(
                    folder / ours,
                    gzip.compress(content, mtime=0) if packed else content,
                )
                count += 1
        except (RuntimeError, OSError) as error:
            raise FetchError(
                f"{source.url}: its program, which needs {source.program.needs}, failed: {error}"
            ) from None
    return count


def _found(
    ours: str,
    expected: str,
    contents: Contents,
    source: Source,
    theirs: Sequence[str],
) -> bytes | None:
    """Return a file of ours, made of the first of their files that has its content; None if there is none."""
    for pattern, derive in source.derived.items():
        if known := re.fullmatch(pattern, ours):
            content = derive(known, contents)
            if hashlib.sha256(content).hexdigest() != expected:
                return None
            return gzip.compress(content, mtime=0) if ours.endswith(".gz") else content
    for path in theirs:
        content = contents(path)
        if hashlib.sha256(content).hexdigest() == expected:
            packed = ours.endswith(".gz") and not path.endswith(".gz")
            return gzip.compress(content, mtime=0) if packed else content
    return None


def main(arguments: Sequence[str] | None = None) -> None:
    """Check, fetch, or write the list."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument(
        "--check", action="store_true", help="compare the files with the list"
    )
    group.add_argument("--fetch", metavar="NAME", choices=SOURCES, help="a source")
    group.add_argument("--write", action="store_true", help="make the list anew")
    parser.add_argument("--from", dest="clone", metavar="CLONE", help="with --fetch")
    parser.add_argument("--run", metavar="PYTHON", help="with --fetch: its program")
    asked, folder = (
        parser.parse_args(arguments),
        Path(os.environ.get("BFT_REFERENCE", "")),
    )
    if not os.environ.get("BFT_REFERENCE"):
        parser.error(
            "set BFT_REFERENCE to the folder that holds the data: benchmarks/README.md"
        )
    if asked.fetch:
        try:
            sys.exit(fetch(asked.fetch, folder, asked.clone, asked.run))
        except FetchError as error:
            sys.exit(str(error))
    if not folder.is_dir():
        parser.error(
            f"no folder {folder}, which BFT_REFERENCE names: benchmarks/README.md"
        )
    if asked.check:
        sys.exit(check(folder))
    files = sorted(
        path for path in folder.rglob("*") if path.is_file() and path.parent != folder
    )
    LIST.write_text(
        "".join(
            f"{digest(path)}  {path.relative_to(folder).as_posix()}\n" for path in files
        )
    )


if __name__ == "__main__":
    main()
