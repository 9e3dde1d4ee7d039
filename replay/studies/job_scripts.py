"""Scripts that run a sweep as a job array: each job replays the point of its index; only this package is needed."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

SYSTEMS = ("slurm", "pbs", "lsf", "flux")
# Time limit of one replay in hours; users edit it in the script.
HOURS = 1


def script(system: str, study: Path, points: int) -> str:
    """The batch script for the points of a study; logs go to the study's folder `logs`."""
    study = study.absolute()
    command, folder, logs = (
        shlex.quote(_program()),
        shlex.quote(str(study)),
        study / "logs",
    )
    last = points - 1

    def run(index: str) -> str:
        return f"exec {command} sweep run --index {index} --out {folder}"

    lines = {
        "slurm": [
            "#SBATCH --job-name=bft-sweep",
            f"#SBATCH --array=0-{last}",
            "#SBATCH --ntasks=1 --cpus-per-task=1",
            f"#SBATCH --time={HOURS:02}:00:00",
            f"#SBATCH --output={logs}/%a.log",
            run('"$SLURM_ARRAY_TASK_ID"'),
        ],
        # A PBS array has at least two jobs.
        "pbs": [
            "#PBS -N bft-sweep",
            *([f"#PBS -J 0-{last}"] if last else []),
            "#PBS -l select=1:ncpus=1",
            f"#PBS -l walltime={HOURS:02}:00:00",
            "#PBS -j oe",
            f"#PBS -o {logs}/",
            run('"${PBS_ARRAY_INDEX:-0}"'),
        ],
        "lsf": [
            f'#BSUB -J "bft-sweep[1-{points}]"',
            "#BSUB -n 1",
            f"#BSUB -W {HOURS}:00",
            f"#BSUB -o {logs}/%I.log",
            run('"$((LSB_JOBINDEX - 1))"'),  # LSF counts from 1
        ],
        "flux": [
            f"exec flux submit --cc=0-{last} --job-name=bft-sweep --cores=1 --time-limit={HOURS}h \\",
            f"  --output={shlex.quote(str(logs))}/{{cc}}.log {command} sweep run --index {{cc}} --out {folder}",
        ],
    }
    return "\n".join(["#!/bin/sh", *lines[system]]) + "\n"


def _program() -> str:
    """The command that starts this installation."""
    beside = Path(sys.executable).with_name("bft-replay")
    return str(beside) if beside.exists() else "bft-replay"
