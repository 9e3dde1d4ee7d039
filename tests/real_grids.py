"""A real Grid Engine and a real OAR of four nodes on this machine, in a network and a file system view of their own."""

import os
import shutil
import subprocess
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from processes import end_process
from real_slurm import PATH, PATIENCE_S, require, wait_until

NODES = ("n1", "n2", "n3", "n4")
# Where the folder of a scheduler is in its own view of the file system: all users reach it there.
INSIDE = "/mnt"
_SGE = "/usr/lib/gridengine"
# The head's address ends with 0, that of n1 with 1, and so on.
_ADDRESS = "10.7.0.1"


def _require(*programs: str) -> None:
    require("unshare", "nsenter", "ip", *programs)
    alone = ("unshare", "-n", "-m", "-u", "true")
    if subprocess.run(alone, capture_output=True, check=False).returncode:
        pytest.skip("the test needs a network of its own (unshare)")


@dataclass(frozen=True, slots=True)
class Grid:
    """A scheduler that runs in namespaces of its own.

    Parameters
    ----------
    folder
        Where its configuration, state and logs are; `INSIDE` for its commands.
    env
        Environment in which commands talk to it.
    holder
        The process whose namespaces they are.
    stack
        Ends all daemons.
    """

    folder: Path
    env: dict[str, str]
    holder: int
    stack: ExitStack

    def within(self, *command: str, user: str = "") -> tuple[str, ...]:
        """The command, run in the namespaces, in the folder."""
        as_user = ("runuser", "-u", user, "--") if user else ()
        inside = ("sh", "-c", f'cd {INSIDE} && exec "$@"', "sh")
        enter = ("nsenter", "-t", str(self.holder), "-n", "-m", "-u")
        return *enter, *inside, *as_user, *command

    def run(self, *command: str, user: str = "") -> str:
        done = self._done(self.within(*command, user=user))
        assert done.returncode == 0, f"{command}: {done.stdout} {done.stderr}"
        return done.stdout

    def works(self, *command: str) -> bool:
        return self._done(self.within(*command)).returncode == 0

    def _done(self, command: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def daemon(self, name: str, *command: str, user: str = "", **env: str) -> None:
        log = (self.folder / f"{name}.out").open("ab")
        self.stack.callback(log.close)
        process = subprocess.Popen(
            self.within(*command, user=user),
            env=self.env | env,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        self.stack.callback(end_process, process)


@contextmanager
def _namespaces(folder: Path, setup: str, **env: str):
    """Hold a network with the loopback device alone, and the mounts that `setup`, lines of a shell, adds."""
    folder.chmod(0o755)  # pytest makes it for its own user alone
    hold = f"""
mount --make-rprivate /
mount --bind {folder} {INSIDE}
ip link set lo up
{setup}
touch {INSIDE}/ready
exec sleep infinity"""
    with ExitStack() as stack:
        holder = subprocess.Popen(("unshare", "-n", "-m", "-u", "sh", "-ec", hold))
        stack.callback(end_process, holder)
        wait_until((folder / "ready").exists, "no namespaces")
        yield Grid(folder, {**os.environ, "PATH": PATH, **env}, holder.pid, stack)


@contextmanager
def grid_engine(folder: Path):
    """Start sge_qmaster and one sge_execd a node with 4 slots, and a parallel environment mpi with 4 slots a node.

    Each sge_execd has a host name and a network of its own, with a cable to the head, which passes on what is for
    others.
    """
    _require(f"{_SGE}/sge_qmaster", f"{_SGE}/sge_execd", "qconf")
    root, spool = folder / "root", folder / "spool"
    common = root / "default/common"
    for made in (common, spool / "qmaster/job_scripts", spool / "execd", spool / "db"):
        made.mkdir(parents=True)
    for part in ("bin", "lib", "util", "utilbin"):
        (root / part).symlink_to(f"/var/lib/gridengine/{part}")
    programs = next(Path("/var/lib/gridengine/bin").glob("*/sge_execd")).parent
    hosts = "".join(
        f"{_ADDRESS}{k} {name}\n" for k, name in enumerate(("head", *NODES))
    )
    (folder / "hosts").write_text(f"{hosts}127.0.0.1 localhost\n")
    (common / "act_qmaster").write_text("head\n")
    (common / "bootstrap").write_text(f"""\
admin_user none
default_domain none
ignore_fqdn false
spooling_method berkeleydb
spooling_lib libspoolb
spooling_params {INSIDE}/spool/db
binary_path {_SGE}
qmaster_spool_dir {INSIDE}/spool/qmaster
security_mode none
listener_threads 2
worker_threads 2
scheduler_threads 1
""")
    setup = f"mount --bind {INSIDE}/hosts /etc/hosts\nhostname head\n{_CABLES}"
    env = {
        "PATH": f"{programs}{os.pathsep}{PATH}",
        "SGE_ROOT": f"{INSIDE}/root",
        "SGE_CELL": "default",
        "SGE_QMASTER_PORT": "6444",
        "SGE_EXECD_PORT": "6445",
        "SGE_ND": "1",  # daemons stay in the foreground
    }
    with _namespaces(folder, setup, **env) as grid:
        _spool(grid)
        grid.daemon("qmaster", f"{programs}/sge_qmaster")
        wait_until(lambda: grid.works("qhost"), "sge_qmaster did not come up")
        _configure(grid)
        for node in NODES:
            named = ("unshare", "-u", "sh", "-ec", f'hostname {node}; exec "$@"', "sh")
            alone = ("ip", "netns", "exec", node, *named)
            grid.daemon(f"execd-{node}", *alone, f"{programs}/sge_execd")
        wait_until(
            lambda: grid.run("qhost").count(" lx-") == len(NODES), "no sge_execd"
        )
        yield grid


_CABLES = f"""\
echo 1 > /proc/sys/net/ipv4/ip_forward
mount -t tmpfs tmpfs /run
ip addr add {_ADDRESS}0/32 dev lo
for k in 1 2 3 4; do
  ip netns add n$k
  ip link add cable$k type veth peer name wire netns n$k
  ip link set cable$k up
  ip route add {_ADDRESS}$k/32 dev cable$k src {_ADDRESS}0
  echo 1 > /proc/sys/net/ipv4/conf/cable$k/proxy_arp
  ip -n n$k link set lo up
  ip -n n$k addr add {_ADDRESS}$k/32 dev wire
  ip -n n$k link set wire up
  ip -n n$k route add default dev wire
done"""


def _changed(text: str, **values: str) -> str:
    """Put other values into a configuration of Grid Engine, which has a name and a value a line."""
    rows = [line.split(maxsplit=1) for line in text.splitlines() if line.strip()]
    return "".join(
        f"{row[0]} {values.get(row[0], ' '.join(row[1:]))}\n" for row in rows
    )


def _spool(grid: Grid) -> None:
    """Make the data base of Grid Engine, as the script of Debian's package does."""
    shared = Path("/usr/share/gridengine")
    configuration = _changed(
        (shared / "default-configuration").read_text(),
        execd_spool_dir=f"{INSIDE}/spool/execd",
        min_uid="0",
        min_gid="0",
        load_report_time="00:00:05",
        reporting_params="accounting=true reporting=false flush_time=00:00:01 joblog=false sharelog=00:00:00",
    )
    (grid.folder / "configuration").write_text(configuration)
    grid.run(
        f"{_SGE}/spoolinit", "berkeleydb", "libspoolb", f"{INSIDE}/spool/db", "init"
    )
    for what, given in (
        ("configuration", f"{INSIDE}/configuration"),
        ("complexes", f"{shared}/util/resources/centry"),
        ("usersets", f"{shared}/util/resources/usersets"),
        ("managers", "root"),
    ):
        grid.run(f"{_SGE}/spooldefaults", what, given)


def _configure(grid: Grid) -> None:
    """State hosts, the parallel environment, the queue, and how often jobs are placed."""
    grid.run("qconf", "-as", "head")
    for node in NODES:
        grid.run("qconf", "-ah", node)
    queue = _changed(
        grid.run("qconf", "-sq"),
        qname="all.q",
        hostlist="@allhosts",
        slots="4",
        pe_list="mpi",
        load_thresholds="NONE",
    )
    scheduler = _changed(
        grid.run("qconf", "-ssconf"),
        schedule_interval="0:0:2",
        flush_submit_sec="1",
        flush_finish_sec="1",
    )
    for option, text in (
        ("-Ahgrp", f"group_name @allhosts\nhostlist {' '.join(NODES)}\n"),
        ("-Ap", _ENVIRONMENT),
        ("-Aq", queue),
        ("-Msconf", scheduler),
    ):
        (grid.folder / "given").write_text(text)
        grid.run("qconf", option, f"{INSIDE}/given")


_ENVIRONMENT = """\
pe_name mpi
slots 999
user_lists NONE
xuser_lists NONE
start_proc_args NONE
stop_proc_args NONE
allocation_rule 4
control_slaves TRUE
job_is_first_task FALSE
urgency_slots min
accounting_summary FALSE
qsort_args NONE
"""


# The data base of OAR, and two resources a node.
_FILLED = f"""
sql="psql -q -v ON_ERROR_STOP=1 -h 127.0.0.1 -U"
for role in oar oar_ro; do
    $sql postgres postgres -c "CREATE ROLE $role LOGIN PASSWORD '$role'"
done
$sql postgres postgres -c "CREATE DATABASE oar OWNER oar"
for name in pg_structure pg_default_admission_rules default_data; do
    $sql oar oar -f /usr/lib/oar/database/$name.sql
done
$sql oar oar -c "GRANT SELECT ON ALL TABLES IN SCHEMA public TO oar_ro"
for node in {" ".join(NODES)}; do
    oarnodesetting -a -h $node
    oarnodesetting -a -h $node
done
"""


@contextmanager
def oar(folder: Path):
    """Start PostgreSQL and OAR's server with two resources a node; a command takes the place of ssh, and runs here.

    Jobs are those of the user postgres: OAR refuses those of root.
    """
    _require("Almighty", "oarsub", "oarstat", "psql", "runuser")
    # Debian keeps those of PostgreSQL's programs that are for the server out of the path.
    binaries = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    home, data, state = (folder / name for name in ("home", "db", "state"))
    for made, owner in ((home, "postgres"), (data, "postgres"), (state, "oar")):
        made.mkdir(parents=True)
        shutil.chown(made, owner)
    ours = {
        "DB_BASE_PASSWD": "oar",
        "DB_BASE_PASSWD_RO": "oar_ro",
        "OPENSSH_CMD": f"{INSIDE}/ssh",
        "LOG_FILE": f"{INSIDE}/state/oar.log",
        "OAR_RUNTIME_DIRECTORY": f"{INSIDE}/state",
        "SCHEDULER_JOB_SECURITY_TIME": "1",
        "JOB_RESOURCE_MANAGER_PROPERTY_DB_FIELD": None,  # no control groups
    }
    lines = Path("/etc/oar/oar.conf").read_text().splitlines()
    kept = [line for line in lines if line.partition("=")[0] not in ours]
    kept += [f'{name}="{value}"' for name, value in ours.items() if value is not None]
    configuration = folder / "oar.conf"
    configuration.write_text("\n".join([*kept, ""]))
    configuration.chmod(0o600)
    shutil.chown(configuration, "oar", "oar")
    (folder / "ssh").write_text(
        "#!/bin/sh\n# its options, the host, and a command\n"
        'while case $1 in -*) true;; *) false;; esac; do shift; done\nshift\nexec sh -c "$*"\n'
    )
    (folder / "ssh").chmod(0o755)
    setup = f"mount --bind {INSIDE}/oar.conf /etc/oar/oar.conf"
    with _namespaces(folder, setup) as grid:
        place = ("-D", f"{INSIDE}/db")
        grid.run(f"{binaries[-1]}/initdb", "-A", "trust", *place, user="postgres")
        listens = ("-k", f"{INSIDE}/db", "-c", "listen_addresses=127.0.0.1")
        grid.daemon(
            "postgres", f"{binaries[-1]}/postgres", *place, *listens, user="postgres"
        )
        admin = ("psql", "-q", "-h", "127.0.0.1", "-U", "postgres", "postgres", "-c")
        wait_until(lambda: grid.works(*admin, ""), "PostgreSQL did not come up")
        grid.run("bash", "-ec", _FILLED)
        grid.daemon("almighty", "Almighty")
        yield grid
