"""A SLURM cluster on this machine: munge, slurmctld and a slurmd for each node, from Debian's packages.

Each node has a network, a host name, processes, /tmp and /dev/shm of its own, as namespaces of the kernel give them, and a link to
a bridge, where the controller is. All nodes share the folder `shared`. Everything is inside namespaces that `enter` makes: they go,
with every process, network and mount in them, when the test's process does, however it ends.
"""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

import ztrain_run as zt

INSIDE = "ZTRAIN_TEST_INSIDE_CLUSTER"
SKIPPED = 77
ROOT = pathlib.Path("/run/cluster")  # sockets below it have short names, as they must
NAMESPACES = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts", "--ipc"]
PROGRAMS = ("slurmctld", "slurmd", "munged", "mungekey", "sbatch", "ip", "tc", "unshare")

# Short periods, so that a test need not wait for minutes, but longer than a machine with other work may keep a daemon waiting.
# A requeued job starts once its credentials have expired.
CONFIGURATION = """ClusterName=test
SlurmctldHost=ctl(10.77.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={root}/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool.%n
SlurmctldLogFile={root}/log/ctl
SlurmdLogFile={root}/log/%n
SlurmctldPidFile={root}/ctl.pid
SlurmdPidFile={root}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0
ReturnToService=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmdTimeout=8
KillWait=5
TCPTimeout=2
MessageTimeout=10
MpiDefault=none
PropagatePrioProcess=1
"""


def requirements():
    """Why there can be no cluster here; "" where there can."""
    if os.geteuid() != 0:
        return "only root may make the nodes' networks"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (Debian's slurm-wlm, munge and iproute2)"
    trial = ["unshare", *NAMESPACES, "sh", "-c", "mount -t tmpfs none /run && ip link add zbr type bridge"]
    done = subprocess.run(trial, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"namespaces are not allowed here: {done.stderr.strip()}"


def enter():
    """Goes on in namespaces of their own, or ends with the status that says skipped."""
    if os.environ.get(INSIDE) == "1":
        return
    reason = requirements()
    if reason:
        print(f"SKIPPED: no SLURM cluster on this machine: {reason}")
        sys.exit(SKIPPED)
    os.environ[INSIDE] = "1"
    with contextlib.suppress(PermissionError):
        os.nice(-10)  # The cluster needs little of a processor, but that within seconds: other tests use all of it.
    sys.stdout.flush()
    os.execvp("unshare", ["unshare", *NAMESPACES, sys.executable, "-B", *sys.argv])


def must(*words, **options):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, words))}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


class Node:
    """One node: `start` boots it, `kill` is its power cut."""

    # The shell is the first process of the node's namespace: it takes in orphans, and with it all others end.
    BOOT = """set -e
cd /
mkdir -p {root}/spool.{name}
hostname {name}; mount --bind {root}/hosts /etc/hosts; mount -t tmpfs tmp /tmp; mount -t tmpfs shm /dev/shm
until ip link show eth0 >/dev/null 2>&1; do sleep 0.05; done
ip link set lo up; ip addr add {address}/24 dev eth0; ip link set eth0 up
/usr/sbin/slurmd -D -N {name} -f {root}/slurm.conf & wait
"""

    def __init__(self, number):
        self.name, self.address, self.link = f"n{number}", f"10.77.0.{10 + number}", f"link{number}"
        self.process = None

    def start(self):
        script = self.BOOT.format(root=ROOT, name=self.name, address=self.address)
        with open(ROOT / "log" / f"{self.name}.boot", "a") as log:
            words = ["unshare", *NAMESPACES, "bash", "-c", script]
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        (first,) = zt.wait_for(f"node {self.name}", self.children)
        network = f"/proc/{first}/ns/net"
        zt.wait_for("its network", lambda: os.readlink(network) != os.readlink("/proc/self/ns/net"))
        must("ip", "link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", first)
        must("ip", "link", "set", self.link, "master", "bridge0", "up")

    def children(self):
        return [pid for pid in zt.descendants(self.process.pid) if zt.parent_of(pid) == self.process.pid]

    def kill(self):
        """All its processes at once; the link goes with the network."""
        self.process.kill()
        self.process.wait()

    def cut(self):
        must("ip", "link", "set", self.link, "down")

    def mend(self):
        must("ip", "link", "set", self.link, "up")

    def slow(self, rate):
        must("tc", "qdisc", "replace", "dev", self.link, "root", "tbf", "rate", rate, "burst", "16kb", "latency", "1s")

    def fast(self):
        """Also where it is fast already."""
        subprocess.run(["tc", "qdisc", "del", "dev", self.link, "root"], capture_output=True, check=False)


class Cluster:
    def __init__(self, nodes):
        self.nodes = [Node(i + 1) for i in range(nodes)]
        self.shared = ROOT / "shared"

    def start(self):
        must("mount", "-t", "tmpfs", "run", "/run")
        for folder in (ROOT / "log", ROOT / "state", self.shared):
            folder.mkdir(parents=True)
        # Nodes have a /tmp of their own, which may be where the sources or the executable are.
        for name, folder in (("source", zt.SOURCE), ("build", pathlib.Path(zt.EXECUTABLE).parent)):
            (ROOT / name).mkdir()
            must("mount", "--bind", folder, ROOT / name)
        hosts = ["127.0.0.1 localhost", "10.77.0.1 ctl", *(f"{n.address} {n.name}" for n in self.nodes)]
        (ROOT / "hosts").write_text("\n".join(hosts) + "\n")
        text = CONFIGURATION.format(root=ROOT)
        for node in self.nodes:
            text += f"NodeName={node.name} NodeAddr={node.address} CPUs=2 RealMemory=1000\n"
        text += "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE GraceTime=20\n"
        text += "PartitionName=urgent Nodes=ALL PriorityTier=9 PreemptMode=off\n"
        (ROOT / "slurm.conf").write_text(text)
        must("hostname", "ctl")
        must("mount", "--bind", ROOT / "hosts", "/etc/hosts")
        self.start_network()
        self.start_daemons()

    def start_network(self):
        must("ip", "link", "set", "lo", "up")
        must("ip", "link", "add", "bridge0", "type", "bridge")
        must("ip", "addr", "add", "10.77.0.1/24", "dev", "bridge0")
        must("ip", "link", "set", "bridge0", "up")

    def start_daemons(self):
        must("mungekey", "--create", "--keyfile", ROOT / "munge.key")
        files = [f"--{what}={ROOT}/munge.{what.split('-')[0]}" for what in ("key-file", "pid-file", "log-file", "seed-file")]
        must("munged", "--force", f"--socket={ROOT}/munge.socket", *files)
        os.environ["SLURM_CONF"] = str(ROOT / "slurm.conf")
        must("slurmctld", "-f", ROOT / "slurm.conf")
        for node in self.nodes:
            node.start()
        self.wait_for_nodes(len(self.nodes))

    def wait_for_nodes(self, count):
        zt.wait_for(f"{count} idle nodes", lambda: self.states().count("idle") == count, 60)

    def states(self):
        return subprocess.run(
            ["sinfo", "-h", "-N", "-p", "all", "-o", "%T"], capture_output=True, text=True, check=False
        ).stdout.split()

    def environment(self):
        """Of jobs: their ranks talk over TCP, as those of different machines do."""
        return {key: os.environ[key] for key in ("PATH", "SLURM_CONF")} | {
            "HOME": "/root",
            "ZTRAIN": str(ROOT / "build" / pathlib.Path(zt.EXECUTABLE).name),
            "ZTRAIN_ROOT": str(ROOT / "source"),
            "OMPI_MCA_pml": "ob1",
            # Memory that processes of a node share may outlive a start that was killed, and the next would find it.
            "OMPI_MCA_btl": "self,tcp",
            "PMIX_MCA_gds": "hash",
            "OMPI_MCA_btl_tcp_if_include": "10.77.0.0/24",
            "OMPI_MCA_mpi_yield_when_idle": "1",
        }

    def submit(self, *words, env=None):
        """The number of a job; it runs in the shared folder, where its log is. Its ranks, which keep processors busy also while they wait
        for each other, have the priority of the tests beside them, not the cluster's (PropagatePrioProcess)."""
        out = must("nice", "-n", -os.nice(0), "sbatch", "--parsable", *words, cwd=self.shared, env=self.environment() | (env or {}))
        return int(out.strip().split(";")[0])

    def job(self, number):
        """What scontrol says of a job, as {key: value}."""
        text = must("scontrol", "--oneliner", "show", "job", number)
        return dict(re.findall(r"(\S+?)=(\S*)", text))

    def report(self):
        """The ends of all logs, for a test that has failed."""
        parts = []
        for path in [*sorted((ROOT / "log").iterdir()), *sorted(self.shared.glob("*.out"))]:
            parts.append(f"--- {path}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-40:]))
        return "\n".join(parts)
