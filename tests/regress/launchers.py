"""Starts ranks in the environments of other launchers: four that find each other are a job, and four that do not are refused."""

import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import unittest

import ztrain_run as zt

SLURM = "SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=$R SLURM_LOCALID=$R "
PALS = "PALS_APID=7 PALS_APINFO=/nowhere PALS_NODEID=0 PALS_RANKID=$R PALS_SPOOL_DIR=/nowhere PMI_CONTROL_PORT=20001 PMI_SHARED_SECRET=5 "
CRAY = "PALS_LOCAL_RANKID=$R PMI_JOBID=7 PMI_LOCAL_RANK=$R PMI_LOCAL_SIZE=4 PMI_RANK=$R PMI_SIZE=4 PMI_UNIVERSE_SIZE=4 "
# For each launcher: the variables of rank $R of 4, those that the message names, and a part of the message's advice.
LAUNCHERS = {
    "mpiexec of PALS": (PALS + CRAY, "PALS_RANKID=0, PMI_SIZE=4", "mpiexec --pmi=pmix"),
    "srun of a Cray (cray_shasta)": (SLURM + PALS + CRAY, "PALS_RANKID=0, SLURM_PROCID=0, PMI_UNIVERSE_SIZE=4", "srun --mpi=pmix"),
    "srun of a Cray (cray_shasta, before SLURM 23.02)": (SLURM + PALS, "PALS_RANKID=0, SLURM_PROCID=0", "--mpi=cray_shasta"),
    "mpiexec of MPICH (Hydra)": ("PMI_RANK=$R PMI_SIZE=4 MPI_LOCALNRANKS=4 MPI_LOCALRANKID=$R ", "PMI_RANK=0, MPI_LOCALRANKID=0", "mpirun"),
    "srun with PMI": (SLURM + "PMI_RANK=$R PMI_SIZE=4 ", "SLURM_PROCID=0, PMI_RANK=0", "srun --mpi=pmix"),
    "srun": (SLURM, "SLURM_PROCID=0, SLURM_STEP_NUM_TASKS=4", "srun --mpi=pmix"),
}
# Open MPI finds its ranks by variables of PMIx. Under mpirun these keep their values; a rank that is started alone has no server of PMIx.
PRRTE = "PRTE_LAUNCHED=1 OMPI_COMM_WORLD_RANK=$R OMPI_COMM_WORLD_SIZE=4 "
NO_SERVER = "PMIX_NAMESPACE=a@1 PMIX_RANK=$R PMIX_SERVER_URI41=a@0.0;tcp4://127.0.0.1:9 "
OF_PMIX = {
    "srun with PMIx": (SLURM, "SLURM_PROCID=0, PMIX_RANK=0", "built with a PMIx"),
    "mpirun of Open MPI 5 (PRRTE)": (PRRTE, "PRTE_LAUNCHED=1, OMPI_COMM_WORLD_RANK=0", "mpirun or mpiexec of that library"),
}
OPEN_MPI = subprocess.run(zt.LAUNCHER[:1] + ["--version"], capture_output=True, text=True, check=False).stdout.startswith("mpirun (Open")


def under(variables):
    """Returns a wrapper for ranks of mpirun that have these variables in place of Open MPI's."""
    names = "OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_LOCAL_SIZE OMPI_UNIVERSE_SIZE"
    return ["sh", "-c", f'R=$OMPI_COMM_WORLD_RANK; unset {names}; export {variables}; exec "$@"', "sh"]


class Launchers(unittest.TestCase):
    def command(self, variables, rank):
        words = ["env", *variables.replace("$R", str(rank)).split(), *zt.command_line(0, ["--help"])]
        environment = {name: value for name, value in zt.environment().items() if not re.match("OMPI_COMM|PMI", name)}
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)

    @unittest.skipUnless(OPEN_MPI, "the ranks find each other by Open MPI's mpirun")
    def test_four_ranks_are_one_job(self):
        for name, (text, *_) in (LAUNCHERS | OF_PMIX).items():
            with self.subTest(name):
                result = zt.run(4, ["--help"], wrapper=under(text))
                self.assertEqual(result.code, 0, str(result))
                self.assertEqual(result.out.count("ztrain check DECK"), 1, "rank 0 alone prints")

    def test_four_jobs_of_one_rank_are_refused(self):
        start = time.monotonic()
        alone = LAUNCHERS | {name: (text + NO_SERVER, *rest) for name, (text, *rest) in OF_PMIX.items()}
        tasks = {name: [self.command(text, rank) for rank in range(4)] for name, (text, *_) in alone.items()}
        for name, (_, found, advice) in alone.items():
            said = []
            for task in tasks[name]:
                out, err = task.communicate(timeout=20)
                self.assertNotEqual(task.returncode, 0, f"{name}: {out}{err}")
                said.append(err)
            self.assertIn(f"ztrain: {name} has started 4 tasks ({found}", said[0])
            self.assertIn(advice, said[0])
            self.assertEqual(said[1:], [""] * 3, f"{name}: rank 0 says it for all")
        self.assertLess(time.monotonic() - start, 20)

    @unittest.skipUnless(OPEN_MPI and shutil.which("mpiexec.hydra"), "MPICH is not here, or is the MPI of this build")
    def test_ranks_of_another_library_s_mpiexec_are_refused(self):
        words = ["mpiexec.hydra", "-n", "2", *zt.command_line(0, ["--help"])]
        done = subprocess.run(words, capture_output=True, text=True, env=zt.environment(), timeout=20, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"mpiexec of MPICH \(Hydra\) has started 2 tasks \(.*\), .* linked with Open MPI v[\d.]+: start them with")

    def test_data_that_pass_by_a_fast_network_are_told_of(self):
        with tempfile.TemporaryDirectory(prefix="ztrain-root-") as folder:
            device = pathlib.Path(folder) / "sys/class/cxi/cxi0/device"
            device.mkdir(parents=True)
            result = zt.run(2, ["links", "--mebibytes", "1", "--times", "1", "--root", folder])
        self.assertEqual(result.code, 0, str(result))
        self.assertRegex(result.out, r"(?m)^network \S+: MPI by (pml ob1 over btl .*|.*, over TCP between nodes.*)$")
        self.assertRegex(result.out, r"(?m)^slow network \S+: MPI goes over TCP \(.*\) past Slingshot \(cxi0\): sites set, .*FI_PROVIDER=cxi")


if __name__ == "__main__":
    zt.main()
