"""Reference data that a public repository holds in another form, or that its program makes (benchmarks.data).

A file of `DERIVED` is a function of the files of the repository. `tiresias_results` and `bftrainer_results` run the
repository's program, unmodified. Each file is held against the list of SHA-256.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import re
import statistics
import subprocess
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

# The contents of a repository's files by path.
Contents = Callable[[str], bytes]
# A file of ours: the match of its name, and the repository.
Derivation = Callable[[re.Match[str], Contents], bytes]


def lines(rows: list[str], end: str = "\n") -> bytes:
    """Rows as a file."""
    return "".join(row + end for row in rows).encode()


def ran(folder: Path, interpreter: str, *arguments: str) -> None:
    """Run a program in its folder.

    Raises
    ------
    RuntimeError
        When it fails; has the end of what it printed.
    """
    done = subprocess.run(
        [interpreter, *arguments],
        cwd=folder,
        capture_output=True,
        check=False,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(arguments)}: exit code {done.returncode}\n{done.stderr[-2000:]}"
        )


# --- Pollux -----------------------------------------------------------------------------------------------------------

POLLUX_RESULTS = {
    "results-inter": ("avoid", "inter25", "inter50", "noavoid"),
    "results-jobload": tuple(
        f"{policy}-{load}"
        for policy in ("optimus", "pollux", "tiresias")
        for load in ("0.5", "1.0", "1.5", "2.0")
    ),
    "results-period": (
        "pollux-1m",
        "pollux-2m",
        "pollux-30s",
        "pollux-4m",
        "pollux-8m",
    ),
}
POLLUX_WORKLOADS = (
    "workload-1",
    "workload-2",
    "workload-4",
    "workload-6",
    "workload-7",
)


def pollux_averages(_name: re.Match[str], contents: Contents) -> bytes:
    """The average JCT of each published run of Pollux' artifact, from the JCTs in its result files."""
    rows = ["set,policy,workload,jobs,avg_jct"]
    for folder, runs in POLLUX_RESULTS.items():
        for run in runs:
            file = f"simulator/{folder}/{run}/summary.json"
            by_workload = json.loads(contents(file))["jcts"]
            for workload in POLLUX_WORKLOADS:
                jcts = list(by_workload[workload].values())
                mean = sum(jcts) / len(jcts)
                rows.append(f"{folder},{run},{workload},{len(jcts)},{mean!r}")
    return lines(rows, "\r\n")


# --- Lucid: the result logs of a public reproduction ------------------------------------------------------------------

LUCID_LOGS = "simulation/log/Venus_Sept"
# The profiler's log has all jobs in the order of the trace.
LUCID_TRACE = (
    f"{LUCID_LOGS}/logfile/profvc/lgfprof_consolidate_time200_scale2_factor4_log.csv"
)
# Virtual clusters whose results we compare.
LUCID_VCS = (
    "vcEwI", "vcWoR", "vcHvQ", "vcvGl", "vc8Gr", "vcKeu", "vchA3", "vcJsw", "vcefl", "vcvlY",
)  # fmt: skip
LUCID_POLICIES = {
    "fifo_consolidate": "fifo",
    "lucid_consolidate": "lucid_sharing_off",
    "qssf_consolidate": "qssf_ebm",
    "sjf_consolidate": "sjf",
    "srtf_consolidate": "srtf",
    "tiresias_consolidate": "tiresias",
}


def _text_table(content: bytes) -> pd.DataFrame:
    """A CSV file with each cell as it is written."""
    return pd.read_csv(io.BytesIO(content), dtype=str, keep_default_na=False)


def lucid_trace(_name: re.Match[str], contents: Contents) -> bytes:
    """The jobs of Venus in September 2020, in the order of the trace."""
    table = _text_table(contents(LUCID_TRACE))
    return table.loc[:, :"gmem"].to_csv(index=False).encode()  # type: ignore[misc]


def lucid_order(_name: re.Match[str], contents: Contents) -> bytes:
    """The names of the jobs, in the order of the trace."""
    return lines(_text_table(contents(LUCID_TRACE))["job_id"].tolist())


def lucid_jobs(name: re.Match[str], contents: Contents) -> bytes:
    """When each job of the compared virtual clusters started and ended under a policy."""
    policy = name["policy"]
    logs = (f"{vc}/{policy}_consolidate_{vc}_log.csv" for vc in LUCID_VCS)
    table = pd.concat(
        [_text_table(contents(f"{LUCID_LOGS}/{log}")) for log in logs],
        ignore_index=True,
    )
    table = table.iloc[np.argsort(table["job_id"].astype(int), kind="stable")]
    columns = ["job_id", "vc", "start_time", "end_time", "queue", "jct", "ckpt_times"]
    return table[columns].to_csv(index=False, lineterminator="\r\n").encode()


def lucid_averages(name: re.Match[str], contents: Contents) -> bytes:
    """The averages of virtual clusters by policy."""
    kind = {"jct": "jct", "queue": "que"}[name["kind"]]
    table = _text_table(contents(f"{LUCID_LOGS}/{kind}_avg_consolidate.csv"))
    table = table.rename(columns={table.columns[0]: "vc", **LUCID_POLICIES})
    table = table[table["vc"].isin([*LUCID_VCS, "all"])]
    return table.to_csv(index=False, lineterminator="\r\n").encode()


# --- Shockwave: result pickles as tables ------------------------------------------------------------------------------

SHOCKWAVE = "120_0.2_5_100_40_25_0,0.5,0.5_0.6,0.3,0.09,0.01_multigpu_dynamic"
SHOCKWAVE_FOLDERS = {
    "canonical": "scheduler/reproduce/pickles/tacc_32gpus",
    "fidelity": "scheduler/reproduce/pickles/tacc_32gpus_comparison",
}
# All runs whose results are public, from each of which a job's exclusive seconds follow, and each pickle's SHA-256.
# A pickle runs whatever program is in it: no others are opened.
SHOCKWAVE_RUNS = {
    "fidelity/allox/physical": "7227b11175f884d5ff8ace69e78a4a44f1377679c5c655776d36f8d37d9c4c9e",
    "fidelity/allox/simulation": "6b225c9d4cd206c0adc08073879ba651d819d667d15b955a42bf503d0f39ee84",
    "fidelity/finish_time_fairness/physical": "7a2c8c75686d58ce688b2fd1b9625d3147b3fab5fb65da46828354a87617d2bb",
    "fidelity/finish_time_fairness/simulation": "642f08a41ec2456af2a073c268ed5e01d521ea0d04a841a1fb3127bb91e21b47",
    "fidelity/max_min_fairness/physical": "ff0bef3fa57a86214d9513711c3430849d8780a08ea0fabdf387d96d1e039c50",
    "fidelity/max_min_fairness/simulation": "e65541c5fb0629cbd56b30842c024e0f7f70f9f9c80e81d2b7ff5686f982ab85",
    "fidelity/max_sum_throughput_perf/physical": "6d1170611a35b1bb76a3cbc6a43b5eae671adcd33818f9e9ae504c6ac5d9c099",
    "fidelity/max_sum_throughput_perf/simulation": "5916b8e42d0839ea686c6d0136e474e680ff75420c40518e5ba849c787fee50b",
    "fidelity/min_total_duration/physical": "0a645a6187bc21046f2af4ebf258629107ef485f48863c615bc1d423319c8d88",
    "fidelity/min_total_duration/simulation": "115d41318f53d21652dd1d513b3742aa82302c36d47a6f463d96746117dd4173",
    "fidelity/shockwave/physical": "00d0a20068d5aa071a0dc756836762282de647d9cbeead25ae52d202a97f7f60",
    "fidelity/shockwave/simulation": "c54e1eedd4565f8c7c999dcc3ea66276e028db78ad6d160152138a305256178d",
    "canonical/allox/simulation": "aa3c5351b82c1aec723e52177182c2728a265409c20f9d6bcca74d9ac2aeee1a",
    "canonical/finish_time_fairness/simulation": "3f24d4379e3fd469360cb2560d7eeab23ae456bd5387c1a9959fd6f4394aa06b",
    "canonical/max_min_fairness/simulation": "15558262c2677af812d3381b43524cff920251ea21a7d2c27f0e6c8cabe07804",
    "canonical/max_sum_throughput_perf/simulation": "a57c12f6f622eba8cbe731a88f4be75a930653560b1829183edf36bb37922bd6",
    "canonical/min_total_duration/simulation": "581ec23a534ce53d4bd1b3daa2ddf447461cddbf945de6099054a0a42b45e154",
    "canonical/shockwave/simulation": "3f27545e5756249866766188c81a390f54b147a810c4211b310567cec451afac",
    "canonical/gandiva_fair/simulation": "419006a4c39376ba2177b402716f2fb036b69fc4df781c56f5db639ce7f1581a",
    "canonical/new_orig_hyperparam_shockwave/simulation": (
        "5b9a51131371592767971f8ab155a333dbf15d7e770ddba6a7ebb956e6065fd0"
    ),
    "canonical/old_shockwave/simulation": "2db44dbd6b09647d41cfaaf9cb97d7918a0cc2e8155fb08c48352fa9a62065e0",
}
# Their static fairness compares with one of 120 / 32 shares of the cluster.
SHOCKWAVE_SHARES = 120 / 32


class _JobNumber:
    """Stands for the program's class of jobs; keeps the number."""

    def __setstate__(self, state: Mapping[str, int]) -> None:
        self.number = state["_job0"]


class _Results(pickle.Unpickler):
    """Reads results without the program that wrote them."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a class, or what stands for the program's own."""
        if module == "job_id_pair":
            return _JobNumber
        # As NumPy has called it since its version 2.
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


@cache
def _shockwave_results(run: str, contents: Contents) -> dict[str, Any]:
    group, policy, kind = run.split("/")
    file = f"{SHOCKWAVE_FOLDERS[group]}/{policy}_{SHOCKWAVE}_{kind}.pickle"
    content = contents(file)
    if hashlib.sha256(content).hexdigest() != SHOCKWAVE_RUNS[run]:
        raise RuntimeError(f"{file}: not the published pickle, so it is not opened")
    results: dict[str, Any] = _Results(io.BytesIO(content)).load()
    return results


def _shockwave_trace(contents: Contents) -> list[list[str]]:
    file = f"scheduler/traces/reproduce/{SHOCKWAVE}.trace"
    return [row.split("\t") for row in contents(file).decode().splitlines()]


def shockwave_jobs(_name: re.Match[str], contents: Contents) -> bytes:
    """The workload, with the seconds of each job alone: the median over all runs of JCT / (ρ · shares)."""
    alone = np.median(
        [
            np.array(results["jct_list"])
            / (np.array(results["finish_time_fairness_list"]) * SHOCKWAVE_SHARES)
            for results in (_shockwave_results(run, contents) for run in SHOCKWAVE_RUNS)
        ],
        axis=0,
    )
    rows = [
        "job,arrival_s,model,batch_size,gpus,mode,total_steps,duration_s,exclusive_s"
    ]
    for number, row in enumerate(_shockwave_trace(contents)):
        known = re.fullmatch(r"(.*) \(batch size (\d+)\)", row[0])
        assert known is not None, row[0]
        cells = (*known.groups(), row[6], row[7], row[5], row[10])
        rows.append(
            f"{number},{row[11]},{','.join(cells)},{round(round(float(alone[number]), 3), 1)}"
        )
    return lines(rows)


def shockwave_rates(name: re.Match[str], contents: Contents) -> bytes:
    """Steps/s of jobs alone, by GPU, model, batch size and number of GPUs."""
    table = json.loads(contents(f"scheduler/{name['site']}_throughputs.json"))
    rows = ["gpu,consolidated,model,batch_size,gpus,steps_per_s"]
    for gpu, rates in table.items():
        spread = gpu.endswith("_unconsolidated")
        for job, partners in rates.items():
            known = re.fullmatch(r"\('(.*?)(?: \(batch size (\d+)\))?', (\d+)\)", job)
            assert known is not None, job
            model, batch, gpus = known.groups(default="")
            kind = f"{gpu.removesuffix('_unconsolidated')},{int(not spread)}"
            rows.append(f"{kind},{model},{batch},{gpus},{partners['null']}")
    return lines(rows)


def shockwave_run(name: re.Match[str], contents: Contents) -> bytes:
    """One of three tables of a run: who held which workers, steps/s by round, or what became of each job."""
    run = f"{name['group']}/{name['policy']}/{name['kind']}"
    results = _shockwave_results(run, contents)
    schedule = results["per_round_schedule"]
    if name["table"] == "rounds":
        held = [
            f"{number},{job},{' '.join(map(str, workers))}"
            for number, jobs in enumerate(schedule)
            for job, workers in jobs.items()
        ]
        return lines(["round,job,workers", *held])
    if name["table"] == "throughput":
        stated = sorted(
            (getattr(job, "number", job), number, round(float(rate), 6), batch)
            for job, rounds in results["throughput_timeline"].items()
            for number, (rate, batch) in rounds.items()
        )
        rows = [",".join(map(str, row)) for row in stated]
        return lines(["job,round,steps_per_s,batch_size", *rows])
    return _shockwave_ends(results, _shockwave_trace(contents))


def _shockwave_ends(results: Mapping[str, Any], trace: list[list[str]]) -> bytes:
    """When each job of a run ended, its fairness, and the rounds and workers that it had."""
    seconds = {job.number: by for job, by in results["job_run_time"].items()}
    static = results["finish_time_fairness_list"]
    themis = results["finish_time_fairness_themis_list"]
    held: dict[int, list[tuple[int, int]]] = {}
    for number, jobs in enumerate(results["per_round_schedule"]):
        for job, workers in jobs.items():
            held.setdefault(job, []).append((number, len(workers)))
    rows = [
        "job,arrival_s,jct_s,end_s,rho_static,rho_themis,rounds,first_round,last_round,gpu_rounds,"
        "worker_run_s,workers_used"
    ]
    for job, jct in enumerate(map(float, results["jct_list"])):
        arrival, rounds = int(trace[job][11]), held[job]
        cells = (
            job, arrival, round(jct, 3), round(arrival + jct, 3), static[job], float(themis[job]),
            len(rounds), rounds[0][0], rounds[-1][0], sum(count for _, count in rounds),
            round(float(sum(seconds[job].values())), 3), len(seconds[job]),
        )  # fmt: skip
        rows.append(",".join(map(str, cells)))
    return lines(rows)


# --- Tiresias: traces of ours, and the results of its simulator -------------------------------------------------------

TIRESIAS_HEAD = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval"
# Clusters that the repository lacks: nodes, GPUs of a node, GB of memory (which counts nowhere).
TIRESIAS_CLUSTERS = {
    "n1g8": (1, 8, 254),
    "n2g4": (2, 4, 254),
    "n4g4": (4, 4, 254),
    "n8g8": (8, 8, 512),
}
TIRESIAS_CELLS = (
    ("n160g8", "60_job"), ("n160g8", "60_job_x20"), ("n32g4", "60_job"), ("n32g4", "60_job_x20"),
    ("n4g4", "60_job"), ("n4g4", "60_job_x20"), ("n8g8", "venus_vcHvQ"),
)  # fmt: skip
TIRESIAS_SCHEDULES = (
    "dlas", "dlas-gpu-1", "dlas-gpu-8", "dlas-gpu", "dlas-gpu-gittins", "fifo", "fjf", "shortest",
    "shortest-gpu", "sjf",
)  # fmt: skip


def tiresias_cluster(name: re.Match[str], _contents: Contents) -> bytes:
    """A cluster of one switch."""
    nodes, gpus, memory = TIRESIAS_CLUSTERS[name["cluster"]]
    head = "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node"
    return f"{head}\n1,{nodes},{gpus},128,{memory}".encode()


def tiresias_longer(_name: re.Match[str], contents: Contents) -> bytes:
    """Its trace of 60 jobs, each of 20 times the duration."""
    rows = [row.split(",") for row in contents("simulator/60_job.csv").decode().split()]
    for row in rows[1:]:
        row[5] = str(20 * int(row[5]))
    return lines([",".join(row) for row in rows])


def tiresias_venus(reference: Path) -> bytes:
    """The jobs of a virtual cluster of Venus in the simulator's form, from Lucid's trace."""
    file = reference / "lucid" / "venus_sept_jobs_relative.csv.gz"
    if not file.is_file():
        raise RuntimeError(f"no {file}: fetch lucid-results first")
    jobs = pd.read_csv(file)
    jobs = jobs[jobs["vc"] == "vcHvQ"].sort_values(["submit_time", "job_id"])
    first = jobs["submit_time"].min()
    return lines(
        [
            TIRESIAS_HEAD,
            *(
                f"{job.job_id},{job.gpu_num},{job.submit_time - first},1000,resnet50,{job.duration},0"
                for job in jobs.itertuples()
            ),
        ]
    )


def tiresias_results(
    checkout: Path, reference: Path, interpreter: str
) -> Iterator[tuple[str, bytes]]:
    """Records of each job, by cluster, trace and schedule, and their averages."""
    venus = tiresias_venus(reference)
    yield "tiresias/venus_vcHvQ.csv", venus
    simulator = checkout / "simulator"
    (simulator / "venus_vcHvQ.csv").write_bytes(venus)
    for name in [*TIRESIAS_CLUSTERS, "60_job_x20"]:
        (simulator / f"{name}.csv").write_bytes(
            (reference / "tiresias" / f"{name}.csv").read_bytes()
        )
    rows = [
        "cluster,trace,scheme,schedule,rc,jobs_done,avg_jct,median_jct,p95_jct,makespan_end,avg_pending,"
        "preemptions,promotions"
    ]
    for cluster, trace in TIRESIAS_CELLS:
        for schedule in TIRESIAS_SCHEDULES:
            cell = f"{cluster}-{trace}-{schedule}"
            options = {
                "cluster_spec": f"{cluster}.csv",
                "scheme": "count",
                "trace_file": f"{trace}.csv",
                "schedule": schedule,
                "log_path": cell,
            }
            given = [f"--{name}={value}" for name, value in options.items()]
            ran(simulator, interpreter, "run_sim.py", "--print", *given)
            content = (simulator / cell / "job.csv").read_bytes()
            yield f"tiresias/golden/{cell}.job.csv.gz", content
            rows.append(f"{cluster},{trace},count,{schedule},0,{_averages(content)}")
    yield "tiresias/golden/summary.csv", lines(rows, "\r\n")


def _averages(content: bytes) -> str:
    """Jobs, mean, median and 95th percentile of their JCT, last end, mean wait, preemptions and promotions."""
    table = pd.read_csv(io.BytesIO(content))
    jcts = sorted(table["JCT"].tolist())
    cells = (
        len(jcts),
        round(statistics.mean(jcts), 4),
        statistics.median(jcts),
        jcts[int(0.95 * len(jcts))],
        table["end_time"].max(),
        round(statistics.mean(table["pending_time"].tolist()), 4),
        table["preempt"].sum(),
        table["promote"].sum(),
    )
    return ",".join(map(str, cells))


# --- BFTrainer: the logs of its replayer ------------------------------------------------------------------------------

# The solver's licence, which comes with its package and suffices for 16 nodes, is found before the program names a
# file that only its authors have.
LICENSED = (
    "import runpy, sys, gurobipy; gurobipy.Model(); sys.path.insert(0, '.'); sys.argv = sys.argv[1:]; "
    "runpy.run_path(sys.argv[0], run_name='__main__')"
)
SMALL = "hps-shufflenet-{}-10J.pkl"
BFTRAINER_RUNS = {
    "hps10-ndf-nN16-T10": (SMALL, 16, 10, False),
    "hps10-ndf-nN64-T120": (SMALL, 64, 120, False),
    "hps10-ndf-nN128-T10": (SMALL, 128, 10, False),
    "hps10-grb-nN16-T120": (SMALL, 16, 120, True),
    "img-imgps-ndf-J10-nN128-T10": ("ImageNet-imgps-{}-1001J.pkl", 128, 10, False),
}


def bftrainer_results(
    checkout: Path, _reference: Path, interpreter: str
) -> Iterator[tuple[str, bytes]]:
    """The logs of recorded runs: four of the heuristic, one of the MILP."""
    import tarfile

    data = checkout / "dataset"
    with tarfile.open(data / "ndstat-10sdn6-evt.tar.gz") as archive:
        archive.extractall(data, filter="data")
    for run, (jobs, nodes, window_s, milp) in BFTRAINER_RUNS.items():
        options = {
            "-ndmap": "dataset/ndstat-10sdn6-evt.pkl",
            "-bdfn": f"dataset/{jobs.format('Jbnd')}",
            "-scfn": f"dataset/{jobs.format('JNPs')}",
            "-nN": nodes,
            "-Tfwd": window_s,
            "-mip": int(milp),
            "-print": 0,
            "-name": run,
        }
        given = [str(word) for pair in options.items() for word in pair]
        ran(checkout, interpreter, "-c", LICENSED, "BFTrainer-replay.py", *given)
        log = checkout / f"{run}-itrOut" / "step-logs.csv"
        yield f"bftrainer/golden/{run}/step-logs.csv.gz", log.read_bytes()


DERIVED: Mapping[str, Mapping[str, Derivation]] = {
    "pollux": {r"pollux/published_avg_jct\.csv": pollux_averages},
    "lucid-results": {
        r"lucid/venus_sept_jobs_relative\.csv\.gz": lucid_trace,
        r"lucid/venus_sept_original_order\.txt\.gz": lucid_order,
        r"lucid/golden/(?P<policy>\w+)\.jobs\.csv\.gz": lucid_jobs,
        r"lucid/golden/avg_(?P<kind>jct|queue)_by_vc\.csv": lucid_averages,
    },
    "shockwave": {
        r"shockwave/jobs\.csv": shockwave_jobs,
        r"shockwave/throughputs_(?P<site>\w+)\.csv": shockwave_rates,
        r"shockwave/golden/(?P<group>\w+)-(?P<policy>\w+)-(?P<kind>\w+)\.(?P<table>\w+)\.csv\.gz": shockwave_run,
    },
    "tiresias": {
        r"tiresias/(?P<cluster>n1g8|n2g4|n4g4|n8g8)\.csv": tiresias_cluster,
        r"tiresias/60_job_x20\.csv": tiresias_longer,
    },
}
