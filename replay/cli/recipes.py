"""How to export from each scheduler what `ingest` needs: commands to copy, least privileges first."""

from __future__ import annotations

from bft.replay.logs.formats import flux, slurm

# What prints the states of all nodes, by scheduler.
SNAPSHOTS: dict[str, str] = {
    "slurm": 'sinfo -N -h -o "%N %T"',
    "pbs": "pbsnodes -a",
    "lsf": "bhosts -w",
    "sge": "qstat -f",
    # The name first; a state that no node is in has none.
    "flux": 'flux resource list -no "{nodelist} {state}" | grep -v "^ "',
}
_TITLES = {
    "slurm": "Slurm",
    "pbs": "PBS Pro, OpenPBS, Torque",
    "lsf": "LSF (bhosts must be on the PATH of cron)",
    "sge": "Grid Engine",
    "flux": "Flux",
}


def crontab_line(scheduler: str) -> str:
    r"""The line of a crontab that adds a snapshot of all nodes to a file every minute; cron needs each % escaped.

    >>> crontab_line("lsf")
    '* * * * * (date +\\%s; bhosts -w) >> $HOME/nodes.snapshots'
    """
    command = f"date +%s; {SNAPSHOTS[scheduler]}".replace("%", r"\%")
    return f"* * * * * ({command}) >> $HOME/nodes.snapshots"


def _snapshots() -> str:
    """The recipe of snapshots for all schedulers."""
    lines = "".join(
        f"# {_TITLES[scheduler]}:\n{crontab_line(scheduler)}\n"
        for scheduler in SNAPSHOTS
    )
    return f"""\
# The states of all nodes every minute, by cron (crontab -e), any user: take the line of your scheduler. A line with the
# time comes before each snapshot. The shorter the period, the more of the short idle fragments are seen.
{lines}# Then, whichever it was:
bft-replay ingest snapshots nodes.snapshots -o trace.parquet
"""


# Commands that fit a line of a terminal.
_SACCT = slurm.COMMAND.replace(" --format", " \\\n  --format")
_FLUX = flux.TABLE_COMMAND.replace(" -o", " \\\n  -o")
RECIPES: dict[str, str] = {
    "slurm": f"""\
# Slurm. SLURM_TIME_FORMAT=%s prints seconds since 1970, which no change of clocks makes ambiguous.
# 1. Jobs. Any user, if `scontrol show config | grep PrivateData` does not name jobs; else an operator must run it, as
#    a user would see own jobs only and the rest of the machine would look idle.
#    -a takes all users, -X leaves out job steps, -D keeps what was requeued.
#    A job that runs at the end of one export and ends in the next is one job: exports of single days may be joined.
#    By NNodes, Eligible and Timelimit a replay tells how long these jobs would wait for nodes that are lent out.
SLURM_TIME_FORMAT=%s {_SACCT} \\
  | xz > jobs.sacct.xz
# 2. Nodes of the machine, any user:
scontrol -o show node > nodes.txt
#    How many GPUs of a node are idle: add --unit gpu to the last command. Which ones Slurm knows while a job runs
#    alone: a line for crontab -e keeps it; give gpus.txt beside jobs.sacct.xz.
#    */5 * * * * SLURM_TIME_FORMAT=\\%s scontrol -a -o -d show job >> $HOME/gpus.txt
# 3. When nodes were down or drained, any user in most set-ups. Without it such nodes look idle.
SLURM_TIME_FORMAT=%s sacctmgr -P show event Start=2024-01-01 End=2024-02-01 \\
  format=NodeName,TimeStart,TimeEnd,State > events.txt
# 4. Reservations (maintenance), any user:
SLURM_TIME_FORMAT=%s sacctmgr -P show reservation Start=2024-01-01 End=2024-02-01 \\
  format=NodeNames,TimeStart,TimeEnd > reservations.txt
# Then (--from and --to: the dates given to sacct, in the time zone of the machine):
bft-replay ingest slurm jobs.sacct.xz --nodes nodes.txt --events events.txt --reservations reservations.txt \\
  --tz Europe/Berlin --from 2024-01-01 --to 2024-02-01 -o trace.parquet
""",
    "pbs": """\
# PBS Pro, OpenPBS, Torque: one accounting file a day.
# 1. Nodes of the machine, any user:
pbsnodes -a > nodes.txt
# 2. Jobs. The files belong to root; ask the admin for a copy, or for read access to this folder:
#    PBS Pro, OpenPBS: /var/spool/pbs/server_priv/accounting    Torque: /var/spool/torque/server_priv/accounting
cat /var/spool/pbs/server_priv/accounting/202401?? | xz > accounting.xz
# One more day at either end makes the window complete: records of long jobs come when they end.
bft-replay ingest pbs accounting.xz --nodes nodes.txt --tz Europe/Berlin -o trace.parquet
# Nodes that were down or offline are not in the accounting: give them as CSV of node,start,end,state with --events.
# They do not change the window of observation, which is that of the jobs, or --from and --to.
""",
    "lsf": """\
# LSF: lsb.acct has finished jobs, lsb.acct.1, .2 ... older ones. lsb.events has running ones and states of hosts.
# 1. Hosts of the machine, any user:
bhosts -w > nodes.txt
# 2. Jobs. The files belong to the LSF administrator, in most set-ups others may read them:
cp $LSB_SHAREDIR/$(lsid | awk '/cluster name/ {print $NF}')/logdir/lsb.acct* .
bft-replay ingest lsf lsb.acct* --nodes nodes.txt -o trace.parquet
# Times are seconds since 1970 there: no --tz is needed.
""",
    "sge": """\
# Grid Engine: one accounting file, readable by any user.
# 1. Hosts of the machine:
qhost > nodes.txt
# 2. Jobs:
xz -c $SGE_ROOT/$SGE_CELL/common/accounting > accounting.xz
bft-replay ingest sge accounting.xz --nodes nodes.txt -o trace.parquet
# The record of a parallel job names its master host only if its parallel environment says accounting_summary TRUE, or
# if its tasks are not started by Grid Engine (by mpirun with its support, or qrsh -inherit).
""",
    "snapshots": _snapshots(),
    "flux": """\
# Flux. A user sees all jobs; times are seconds since 1970: no --tz is needed.
# 1. Nodes of the machine, any user:
flux resource list -no "{nodelist}" > nodes.txt
# 2. Jobs that the instance still knows: -a also those that have ended, -A of all users, -c 0 all of them.
#    --json instead of -o works too.
"""
    + _FLUX
    + """ > jobs.txt
bft-replay ingest flux jobs.txt --nodes nodes.txt -o trace.parquet
# Or the eventlogs of jobs, each followed by its R; only the owner of the instance reads those of others:
#   for id in $(flux jobs -a -A -c 0 -no "{id}"); do flux job info $id eventlog; flux job info $id R; done > events.json
""",
    "oar": """\
# OAR. Any user; times are seconds since 1970: no --tz is needed.
# 1. Nodes of the machine:
oarnodes -l > nodes.txt
# 2. Jobs that ended in a period or still run, and when nodes were absent or dead. (-f without --gantt lists those alone
#    that have not ended.)
oarstat -J --gantt "2024-01-01 00:00:00, 2024-02-01 00:00:00" > jobs.json
bft-replay ingest oar jobs.json --nodes nodes.txt -o trace.parquet
""",
    "htcondor": """\
# HTCondor. Any user, on the machine of the schedd; times are seconds since 1970: no --tz is needed.
# 1. Machines of the pool:
condor_status -af Machine | sort -u > nodes.txt
# 2. Jobs that have left the queue, and those that run:
condor_history -json > history.json
condor_q -all -json > queue.json
bft-replay ingest htcondor history.json queue.json --nodes nodes.txt -o trace.parquet
# Several schedds of one pool: the histories of all, else the others' machines look idle.
""",
    "kubernetes": """\
# Kubernetes, with Kueue or without. The right to list pods of all namespaces and nodes (ClusterRole view) is enough.
# 1. Nodes that run jobs:
kubectl get nodes -o custom-columns=NAME:.metadata.name --no-headers > nodes.txt
# 2. Pods are forgotten some time after their end: a watch keeps all of them from now on (run it as a service),
kubectl get pods -A -w --output-watch-events -o json > pods.json
# and this takes those that are there now:
kubectl get pods -A -o json > pods-now.json
bft-replay ingest kubernetes pods.json --nodes nodes.txt -o trace.parquet
# Which GPUs are idle on nodes that are busy in part: the list of nodes with what they have, and --unit gpu.
kubectl get nodes -o json > nodes.json
bft-replay ingest kubernetes pods.json --nodes nodes.json --unit gpu -o gpus.parquet
""",
    "slurm-json": """\
# Slurm, as JSON (21.08 or later), with the rights that --recipe slurm describes. One line of it may be huge: jq lays
# it out. squeue adds the jobs that run now, where sacct is not to be had.
sacct -a -D --json -S 2024-01-01 -E 2024-02-01 | jq . > jobs.json
squeue -a --json | jq . > queue.json
bft-replay ingest slurm-json jobs.json queue.json --nodes "cn[001-128]" -o trace.parquet
""",
    "intervals": """\
# Any other scheduler, and monitoring: a table of what nodes did from when to when, with a header.
#   node,start,end,state
#   cn001,1704067200,1704070800,idle
#   "cn[002-004]",2024-01-01T00:00:00Z,2024-01-01T06:30:00Z,busy
# A log of idle nodes is enough: once a row states idle, nodes are idle where a row says so and nowhere else.
# Without such rows state what was busy or down: the rest is idle. Words of sinfo and pbsnodes (alloc, mixed, down*,
# drng, offline, resv, planned) are known. From samples make one row of each stretch in one state.
bft-replay ingest intervals idle.csv --nodes nodes.txt --from 2024-01-01 --to 2024-02-01 --tz UTC -o trace.parquet
""",
    "cobalt": """\
# Cobalt: the job table as CSV, as Argonne publishes it (DIM_JOB_COMPOSITE).
# Columns that are needed: START_TIMESTAMP, END_TIMESTAMP, NODES_USED, LOCATION (all of it: some exports cut it off).
# By QUEUED_TIMESTAMP and WALLTIME_SECONDS a replay tells how long these jobs would wait for nodes that are lent out.
bft-replay ingest cobalt ANL-ALCF-DJC-MIRA_20180101_20181231.csv.gz --tz UTC -o trace.parquet
""",
}
