"""The study directory: runs by the key of their configuration, and the results of a plan."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bft.models import InputError, write_parquet
from bft.models.atomic_files import drafted
from bft.replay.inputs.files import Files
from bft.replay.results.run_directory import SUMMARY, TIMING, plain
from bft.replay.results.run_reading import damage_named
from bft.replay.studies.points import Plan, Point, key_of

if TYPE_CHECKING:
    import pandas as pd

PLAN, RESULTS, TIMINGS = "plan.json", "results.parquet", "timing.parquet"
RUNS, FAILED = "runs", "failed"
FORMAT, FORMAT_VERSION = "bft-replay plan", 1
DONE, FAILURE, MISSING = "done", "failed", "missing"


@dataclass(frozen=True, slots=True)
class Study:
    """A folder of runs: `runs/KEY` is the run directory of a configuration, `failed/KEY.json` records a failed one.

    Every entry is complete, and is reused by every study in this folder that asks for the same configuration.
    """

    folder: Path

    def run(self, key: str) -> Path:
        """The run directory of a configuration."""
        return self.folder / RUNS / key

    def summary(self, key: str) -> dict[str, Any] | None:
        """The summary of a finished run; None if there is none, or if the run is partial."""
        content = read_json(self.run(key) / SUMMARY)
        metrics = None if content is None else content.get("metrics")
        if (
            not isinstance(metrics, dict)
            or metrics.get("interrupted")
            or "policy_error" in metrics
        ):
            return None
        return content

    def failure(self, key: str) -> str | None:
        """Why a run failed in its last attempt."""
        content = read_json(self.folder / FAILED / f"{key}.json")
        return None if content is None else str(content.get("error"))

    def record_failure(self, key: str, error: str) -> None:
        """Record why a run failed."""
        write_whole(
            self.folder / FAILED / f"{key}.json", json.dumps({"error": error}) + "\n"
        )

    def forget_failure(self, key: str) -> None:
        """Remove the record of a failure, before or after another attempt."""
        (self.folder / FAILED / f"{key}.json").unlink(missing_ok=True)

    def write_plan(self, plan: Plan) -> list[str]:
        """Write the plan and return the keys of its points.

        Raises
        ------
        InputError
            When an input is missing, or the folder cannot be written.
        """
        files = Files()
        keys = [key_of(point.options, files) for point in plan.points]
        content = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            **plan.document(keys),
        }
        write_whole(
            self.folder / PLAN, json.dumps(content, indent=1, sort_keys=True) + "\n"
        )
        return keys

    def read_plan(self) -> tuple[Plan, list[str]]:
        """Return the plan, and the keys of its points at the time of planning.

        Raises
        ------
        InputError
            When there is no plan.
        """
        content = read_json(self.folder / PLAN)
        if content is None or content.get("format") != FORMAT:
            raise InputError(
                "no plan of a sweep; `bft-replay sweep plan` makes one",
                file=self.folder / PLAN,
            )
        with damage_named(self.folder / PLAN):
            keys = [str(each["key"]) for each in content["points"]]
            return Plan.from_document(content), keys

    def frame(self, plan: Plan, keys: Sequence[str]) -> pd.DataFrame:
        """Results of the plan's points: `index`, `key`, `status` (done, failed, missing), `error`, options, metrics.

        One row per point, in order. A metric with the name of an option is called `metric.NAME`.
        """
        import pandas as pd

        rows = [
            self._row(point, key) for point, key in zip(plan.points, keys, strict=True)
        ]
        metrics = sorted({name for _, found in rows for name in found})
        frame = pd.DataFrame(
            [
                {**row, **{name: found.get(name) for name in metrics}}
                for row, found in rows
            ]
        )
        return frame.infer_objects()

    def collect(self, plan: Plan, keys: Sequence[str]) -> pd.DataFrame:
        """Write the frame to results.parquet, and wall times to timing.parquet; return the frame."""
        import pandas as pd

        frame = self.frame(plan, keys)
        timings = [
            {
                "index": point.index,
                "key": key,
                **dict(flat(read_json(self.run(key) / TIMING) or {})),
            }
            for point, key in zip(plan.points, keys, strict=True)
        ]
        for table, name in ((frame, RESULTS), (pd.DataFrame(timings), TIMINGS)):
            with drafted(self.folder / name) as draft:
                write_parquet(table, draft)
        return frame

    def _row(self, point: Point, key: str) -> tuple[dict[str, Any], dict[str, Any]]:
        summary, error = self.summary(key), None
        if summary is None:
            error = self.failure(key)
        status = DONE if summary is not None else MISSING if error is None else FAILURE
        row = {"index": point.index, "key": key, "status": status, "error": error}
        row |= {name: _cell(value) for name, value in point.options.flat().items()}
        if "variant" in point.varied:
            row["variant"] = point.varied["variant"]
        row |= {
            name: value
            for name, value in point.varied.items()
            if name.startswith("set ")
        }
        metrics = {} if summary is None else dict(flat(summary["metrics"]))
        return row, {
            f"metric.{name}" if name in row else name: value
            for name, value in metrics.items()
        }


def flat(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Numbers and texts of nested metrics by dotted name: `mean` in `jct_s` is `jct_s.mean`."""
    for name, value in content.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        elif not isinstance(value, list):
            yield prefix + name, value


def _cell(value: Any) -> Any:
    """An option as a table cell: pairs as JSON."""
    return json.dumps(plain(value)) if isinstance(value, tuple) else value


def read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None if the file does not exist."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def write_whole(path: Path, text: str) -> None:
    """Write a text in one step: readers see the old or the new version, also after a kill.

    Raises
    ------
    InputError
        When it cannot be written.
    """
    with drafted(path) as draft:
        draft.write_text(text, encoding="utf-8")
