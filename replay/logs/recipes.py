"""How to export from each scheduler what `ingest` needs: commands to copy, least privileges first."""

from __future__ import annotations

RECIPES: dict[str, str] = {
    "slurm": """\
# Slurm. SLURM_TIME_FORMAT=%s prints seconds since 1970, which no change of clocks makes ambiguous.
# 1. Jobs. Any user, if `scontrol show config | grep PrivateData` does not name jobs; else an operator must run it, as
#    a user would see own jobs only and the rest of the machine would look idle.
#    -a takes all users, -X leaves out job steps, -D keeps what was requeued.
#    A job that runs at the end of one export and ends in the next is one job: exports of single days may be joined.
SLURM_TIME_FORMAT=%s sacct -a -X -D -P -S 2024-01-01 -E 2024-02-01 \\
  --format=JobID,NodeList,AllocNodes,Start,End,State | xz > jobs.sacct.xz
# 2. Nodes of the machine, any user:
scontrol -o show node > nodes.txt
# 3. When nodes were down or drained, any user in most set-ups. Without it such nodes look idle.
SLURM_TIME_FORMAT=%s sacctmgr -P show event Start=2024-01-01 End=2024-02-01 \\
  format=NodeName,TimeStart,TimeEnd,State > events.txt
# 4. Reservations (maintenance), any user:
SLURM_TIME_FORMAT=%s sacctmgr -P show reservation Start=2024-01-01 End=2024-02-01 \\
  format=NodeNames,TimeStart,TimeEnd > reservations.txt
# Then (--from and --to: the dates given to sacct, in the machine's time zone):
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
# LSF: lsb.acct has finished jobs, lsb.acct.1, .2 ... older ones. lsb.events has the running ones and hosts' states.
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
# A parallel job's record names its master host only if accounting_summary is TRUE in its parallel environment.
""",
    "snapshots": """\
# The states of all nodes every minute, by cron (crontab -e), any user; the line of your scheduler. A line with the time
# comes before each snapshot. The shorter the period, the more of the short idle fragments are seen.
# Slurm:
* * * * * (date +\\%s; sinfo -N -h -o "\\%N \\%T") >> $HOME/nodes.snapshots
# PBS Pro, OpenPBS, Torque:
* * * * * (date +\\%s; pbsnodes -a) >> $HOME/nodes.snapshots
# LSF (bhosts must be on the PATH of cron):
* * * * * (date +\\%s; bhosts -w) >> $HOME/nodes.snapshots
# Grid Engine:
* * * * * (date +\\%s; qstat -f) >> $HOME/nodes.snapshots
# Then, whichever it was:
bft-replay ingest snapshots nodes.snapshots -o trace.parquet
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
bft-replay ingest cobalt ANL-ALCF-DJC-MIRA_20180101_20181231.csv.gz --tz UTC -o trace.parquet
""",
}
