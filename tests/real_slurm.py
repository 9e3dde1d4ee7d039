"""A real Slurm of a few nodes on this machine, loopback only, in a folder of its own, for end-to-end tests."""

import os
import re
import shutil
import socket
import subprocess
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from processes import end_process
from synthetic_logs import idle_told

from bft.replay.cli.recipes import RECIPES

NEEDED = (
    "munged",
    "mariadbd",
    "mariadb-install-db",
    "slurmctld",
    "slurmd",
    "slurmdbd",
    "sbatch",
    "sacct",
    "sacctmgr",
)
# States of a job that has not ended, as squeue and sacct print them.
NOT_ENDED = ("PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "COMPLETING", "REQUEUED")
PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
# Seconds that anything here may take on a machine that does much else.
PATIENCE_S = 120


def require(*programs: str) -> None:
    missing = [name for name in programs if shutil.which(name, path=PATH) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed: make sandbox (Debian, as root)")  # fmt: skip
    if os.geteuid() != 0:
        pytest.skip("daemons start jobs of users: the test runs as root only")


@dataclass(frozen=True, slots=True)
class Slurm:
    folder: Path
    env: dict[str, str]

    def run(self, *command: str) -> str:
        done = subprocess.run(
            command,
            env=self.env,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def wait_idle(self, patience_s: float = PATIENCE_S) -> None:
        """Wait until no job is left in the queue, no node is completing one, and `sacct` knows all that ended."""

        def idle() -> bool:
            return not self.run("squeue", "-h").strip() and "comp" not in self.run(
                "sinfo", "-N", "-h", "-o", "%t"
            )

        wait_until(idle, "jobs of Slurm did not end", patience_s)
        self.wait_accounted()

    def wait_accounted(self) -> None:
        """Wait until `sacct` knows the end of every job that ended: the controller sends its records in bulk, later."""

        def accounted() -> bool:
            queue = self._states("squeue", "-h", "-r", "-t", "all", "-o", "%A|%T")
            columns = "--format=JobIDRaw,State"
            records = self._states(
                "sacct", "-a", "-X", "-n", "-P", "-S", "now-1days", columns
            )
            ended = {job for job, state in queue.items() if state not in NOT_ENDED}
            return all(records.get(job, "PENDING") not in NOT_ENDED for job in ended)

        wait_until(accounted, "sacct does not know the ends of all jobs")

    def _states(self, *command: str) -> dict[str, str]:
        """State of each job, of a command that prints both, a job a line."""
        lines = (line.partition("|") for line in self.run(*command).splitlines())
        return {job: state.split()[0] for job, _, state in lines}


@contextmanager
def slurm_cluster(folder: Path, nodes: int, more: str = "", gres: str = "gpu:a100:4"):
    """Start munged, MariaDB, slurmdbd, slurmctld and one slurmd a node of 4 cores and 4 GPUs; end them all.

    `more` are further lines of slurm.conf, and `gres` generic resources of a node.
    """
    require(*NEEDED)
    folder.mkdir(parents=True, exist_ok=True)
    env = {
        **os.environ,
        "PATH": PATH,
        "SLURM_CONF": str(folder / "slurm.conf"),
        "LC_ALL": "C",
        # Two MariaDB that are installed at once would remove each other's temporary tables.
        "TMPDIR": str(folder / "tmp"),
    }
    slurm = Slurm(folder, env)
    ports = _free_ports(3 + nodes)
    _configure(folder, nodes, ports, more, gres)
    with ExitStack() as stack:

        def daemon(*command: str) -> None:
            log = (folder / f"{Path(command[0]).name}.out").open("ab")
            stack.callback(log.close)
            process = subprocess.Popen(
                command, env=env, cwd=folder, stdout=log, stderr=log
            )
            stack.callback(end_process, process)

        daemon("munged", "--foreground", "--force", f"--socket={folder}/munge.sock", f"--key-file={folder}/munge.key",
               f"--pid-file={folder}/munge.pid", f"--seed-file={folder}/seed")  # fmt: skip
        wait_until((folder / "munge.sock").exists)
        subprocess.run(
            ("mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={folder}/db", "--skip-test-db",
             "--auth-root-authentication-method=normal"), env=env, cwd=folder, capture_output=True, check=True,
        )  # fmt: skip
        daemon("mariadbd", "--no-defaults", "--user=root", f"--datadir={folder}/db", f"--socket={folder}/db.sock",
               "--bind-address=127.0.0.1", f"--port={ports[0]}", f"--pid-file={folder}/db.pid",
               "--innodb-buffer-pool-size=32M")  # fmt: skip
        sql = "CREATE USER 'slurm'@'%' IDENTIFIED BY 'slurm'; GRANT ALL ON slurm_acct_db.* TO 'slurm'@'%';"
        wait_until(
            lambda: _works(
                slurm,
                "mariadb",
                "--no-defaults",
                "-S",
                f"{folder}/db.sock",
                "-u",
                "root",
                "-e",
                sql,
            )
        )
        daemon("slurmdbd", "-D")
        wait_until(lambda: _works(slurm, "sacctmgr", "-i", "-n", "show", "cluster"))
        slurm.run("sacctmgr", "-i", "add", "cluster", "sandbox")
        daemon("slurmctld", "-D", "-f", env["SLURM_CONF"])
        for node in range(1, nodes + 1):
            daemon("slurmd", "-D", "-N", f"n{node}", "-f", env["SLURM_CONF"])
        # A line for each node and partition.
        idle = "sinfo", "-N", "-h", "-t", "idle", "-o", "%N"
        wait_until(
            lambda: (
                _works(slurm, "sinfo") and len(set(slurm.run(*idle).split())) == nodes
            )
        )
        yield slurm


def _configure(
    folder: Path, nodes: int, ports: list[int], more: str, gres: str
) -> None:
    for name in ("state", "spool", "db", "tmp"):
        (folder / name).mkdir()
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o400)
    folder.chmod(0o755)  # munged refuses a socket that others cannot reach
    host = socket.gethostname()
    database, accounting, controller, *daemons = ports
    (folder / "slurmdbd.conf").write_text(f"""\
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={accounting}
SlurmUser=root
PidFile={folder}/slurmdbd.pid
LogFile={folder}/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database}
StorageUser=slurm
StoragePass=slurm
""")
    (folder / "slurmdbd.conf").chmod(0o600)
    names = "\n".join(
        f"NodeName=n{node} NodeAddr=127.0.0.1 NodeHostname={host} Port={port} CPUs=4 Gres={gres} RealMemory=3000"
        for node, port in enumerate(daemons, 1)
    )
    for gpu in range(4):
        (folder / f"gpu{gpu}").symlink_to("/dev/null")  # Slurm wants devices
    shares = "".join(
        f"Name={name} Count={count}\n"
        for name, _, count in (part.partition(":") for part in gres.split(","))
        if name != "gpu"
    )
    devices = f"Name=gpu Type=a100 File={folder}/gpu[0-3]\n"
    (folder / "gres.conf").write_text(devices + shares)
    kinds = ",".join(part.partition(":")[0] for part in gres.split(","))
    (folder / "slurm.conf").write_text(f"""\
ClusterName=sandbox
GresTypes={kinds}
SlurmdParameters=config_overrides
DefMemPerCPU=100
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
SlurmctldPort={controller}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={accounting}
AccountingStoragePass={folder}/munge.sock
ReturnToService=2
MaxArraySize=1001
SchedulerParameters=sched_interval=1
{names}
PartitionName=batch Nodes=ALL Default=YES State=UP OverSubscribe=NO
{more}
""")


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        ports = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            for _ in range(count)
        ]
        return [one.getsockname()[1] for one in ports]


def _works(slurm: Slurm, *command: str) -> bool:
    return not subprocess.run(
        command,
        env=slurm.env,
        cwd=slurm.folder,
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    ).returncode


def wait_until(
    done,
    complaint: str = "Slurm's daemons did not come up: see their logs in the test's folder",
    patience_s: float = PATIENCE_S,
) -> None:
    end = time.monotonic() + patience_s
    while not done():
        assert time.monotonic() < end, complaint
        time.sleep(0.2)


@contextmanager
def polled(slurm: Slurm):
    """Ask each second for the states of nodes, as the recipe does by cron; yields what is printed, by second."""
    printed: dict[int, str] = {}
    over = threading.Event()

    def poll() -> None:
        while not over.is_set():
            now = int(time.time())
            printed[now] = slurm.run("sinfo", "-N", "-h", "-o", "%N %T")
            over.wait(0.9)

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield printed
    finally:
        over.set()
        thread.join()


def idle_seconds(trace, begin_s: int, end_s: int) -> np.ndarray:
    """Whether each node (each unit where these turn idle one by one) is idle in each second, in order of names."""
    seconds = end_s - begin_s
    by_node = idle_told(trace, begin_s, seconds).reshape(len(trace.nodes), -1, seconds)
    return by_node[np.argsort(np.array(trace.nodes))].reshape(-1, seconds)


def commands(text: str) -> list[str]:
    """The commands of a recipe: its lines that are no comment, and those that a comment gives to crontab -e."""
    whole = text.replace("\\\n", " ")
    found = []
    for line in whole.splitlines():
        cron = re.match(r"#?\s*(?:\*/5|\*) \* \* \* \* (.*)", line)
        if cron:
            found.append(cron[1].replace(r"\%", "%"))
        elif line.strip() and not line.startswith("#"):
            found.append(line)
    return found


def recipe(name: str) -> str:
    """The command of a recipe that reads what the others have written, without the program's name."""
    ours = "bft-replay "
    (found,) = [each for each in commands(RECIPES[name]) if each.startswith(ours)]
    return found.removeprefix(ours)
