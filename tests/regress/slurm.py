"""slurm/*.sh with stand-ins for SLURM's programs and for ztrain: what they start, and what they refuse."""

import os
import pathlib
import re
import signal
import subprocess

import ztrain_run as zt
from slurm_stand_ins import GPUS, NODE, STAND_INS, Scripts, put


class Slurm(Scripts):
    def start(self, job, **options):
        calls = self.submit(job, "inputs/smoke.toml", **options)
        self.assertEqual(self.done.returncode, 0, self.done.stderr)
        self.assertEqual(len(calls), 2, calls)
        launcher, program = calls
        self.assertTrue(program.endswith("inputs/smoke.toml --checkpoint.resume=auto"), program)
        return launcher.split(), pathlib.Path(program.split()[0]).relative_to(self.root / "build").parts[0]

    def refuse(self, job, pattern):
        self.assertEqual(self.submit(job, "inputs/smoke.toml"), [])
        self.assertEqual(self.done.returncode, 1)
        self.assertRegex(self.done.stderr, r"^slurm/launch\.sh: " + pattern)

    def test_gpus_are_not_left_idle_without_a_word(self):
        for job in (GPUS, {**NODE, "SLURM_JOB_GPUS": "0"}):
            self.refuse(job, r"this job has GPUs .*build/cpu/ztrain is not built for them: build .*ZTRAIN_ALLOW_CPU=1")
            self.assertEqual(self.start({**job, "ZTRAIN_ALLOW_CPU": "1"})[1], "cpu")
        self.build_for_gpus()
        self.assertEqual(self.start(GPUS)[1], "cuda")
        self.refuse({**GPUS, "ZTRAIN": str(self.root / "build/cpu/ztrain")}, "this job has GPUs ")
        wrapper = self.bin / "wrapper"
        put(wrapper, f'#!/usr/bin/env bash\nexec "{self.root}/build/cuda/ztrain" "$@"\n')
        self.start({**GPUS, "ZTRAIN": str(wrapper)})

    def test_without_gpus_ranks_are_cores(self):
        self.build_for_gpus()
        for job in (NODE, {**NODE, "SLURM_GPUS_ON_NODE": "0"}):
            launcher, build = self.start(job)
            self.assertEqual(build, "cpu")
            self.assertIn("--cpu-bind=cores", launcher)
            self.assertNotIn("--cpus-per-task", " ".join(launcher))

    def test_ranks_with_gpus_have_their_share_of_the_cores(self):
        self.build_for_gpus()
        of_nodes = {key: value for key, value in GPUS.items() if key != "SLURM_NTASKS_PER_NODE"}
        for job, share in ((GPUS, 16), (of_nodes, 16), ({**GPUS, "SLURM_CPUS_PER_TASK": "6"}, 6)):
            launcher, _ = self.start(job)
            self.assertIn(f"--cpus-per-task={share}", launcher)
            self.assertIn("--distribution=block:block", launcher)
            self.assertIn("--kill-on-bad-exit=1 --wait=300", " ".join(launcher))
            self.assertNotIn("--gpus-per-task", self.done.stderr)
        self.start({**GPUS, "SLURM_GPUS_PER_TASK": "1"})
        self.assertIn("warning: with --gpus-per-task=1 each rank sees its own GPU alone", self.done.stderr)
        launcher, _ = self.start({**NODE, "SLURM_CPUS_PER_TASK": "2"})
        self.assertIn("--cpus-per-task=2", launcher, "srun does not take it from the job")
        launcher, _ = self.start({**GPUS, "SLURM_CPUS_ON_NODE": "4"})
        self.assertNotIn("--cpus-per-task", " ".join(launcher), "there is less than one for each")

    def test_mpirun_binds_ranks_with_gpus_to_no_core(self):
        self.build_for_gpus()
        line, _ = self.submit({**GPUS, "ZTRAIN_MPI": "mpirun"}, "inputs/smoke.toml")
        self.assertIn("mpirun --bind-to none ", line)
        line, _ = self.submit({**NODE, "ZTRAIN_MPI": "mpirun"}, "inputs/smoke.toml")
        self.assertNotIn("--bind-to", line)

    def test_what_is_missing_is_named(self):
        self.refuse({**NODE, "ZTRAIN_MPI": "pmi9"}, r"this SLURM has no MPI plugin 'pmi9'. It has: .*pmix")
        self.refuse({}, "not inside a SLURM job")
        self.refuse({**NODE, "ZTRAIN": "nowhere/ztrain"}, "nowhere/ztrain: no such executable")

    def test_a_step_that_is_not_launched_is_tried_again(self):
        self.start({**NODE, "REFUSED": "4", "SLURM_RESTART_COUNT": "2"})
        self.assertIn("slurm/launch.sh: a node refused to launch the step; up to 1 more tries\n", self.done.stdout)
        self.assertEqual(self.submit({**NODE, "REFUSED": "9"}, "inputs/smoke.toml"), [])
        self.assertEqual(self.done.returncode, 137, self.done.stderr)
        self.assertEqual(self.steps.read_text().count("\n"), 3)

    def test_a_step_that_ends_well_before_any_task_began_is_tried_again(self):
        """As srun says of one whose node fails while it is being launched."""
        self.start({**NODE, "SKIPPED": "2"})
        self.assertEqual(self.done.returncode, 0, self.done.stderr)
        self.assertIn("slurm/launch.sh: launch failed: srun has ended, and rank 0 never began\n", self.done.stderr)
        self.assertEqual(self.submit({**NODE, "SKIPPED": "9"}, "inputs/smoke.toml"), [])
        self.assertEqual((self.done.returncode, self.steps.read_text().count("\n")), (1, 3))

    def told_to_stop(self, job, how):
        """What launch.sh ends with, and what it called since the ranks were told."""
        self.calls.write_text("")
        command = [self.root / "slurm/launch.sh", "inputs/smoke.toml"]
        environment = self.environment({**NODE, **job})
        with subprocess.Popen(command, cwd=self.root, env=environment, stdout=subprocess.PIPE, text=True) as process:
            zt.wait_for("the ranks", lambda: self.calls.read_text().count("\n") == 2)
            how(process)
            process.communicate(timeout=20)
        return process.returncode, self.calls.read_text().splitlines()[2:]

    def test_near_its_end_a_job_saves_and_requeues_itself(self):
        stop = lambda process: process.send_signal(signal.SIGUSR1)
        requeued = (0, ["saved", "scontrol requeue 7"])
        self.assertEqual(self.told_to_stop({"TRAIN": "75"}, stop), requeued)
        says = "ztrain: the run is saved before its end: the same command goes on (exit status 75)"
        self.assertEqual(self.told_to_stop({"TRAIN": "137", "SAYS": says}, stop), requeued)
        self.assertEqual(self.told_to_stop({"TRAIN": "0"}, stop), (0, ["saved"]), "the run was complete")
        self.assertEqual(self.told_to_stop({"TRAIN": "1"}, stop), (1, ["saved"]), "the run failed")

    def test_a_run_that_a_file_has_ended_stays_away(self):
        says = "runs/a/stop of bob (uid 7) is taken: the run saves and ends, as on SIGUSR1"
        put(self.root / "build/cpu/ztrain", STAND_INS["ztrain"].replace("exit 0", f'{{ echo "{says}" >&2; exit 75; }}'))
        self.assertEqual(len(self.submit(NODE, "inputs/smoke.toml")), 2)
        self.assertEqual(self.done.returncode, 75)
        self.assertIn("was asked to end by a file, and job 7 is not requeued\n", self.done.stdout)

    def test_nodes_that_an_audit_names_are_left_out(self):
        says = (
            "ztrain: step 9: silent corruption: weights of a: rank 3 (n5) has other bytes than the other 2 ranks that hold copies\n"
            "the run has gone back 3 times (watchdog.audit_limit), and ends; nodes to leave out: {}; the same command goes on"
        )
        for nodes, job, status, calls in (
            ("n5,n7", {}, 0, ["scontrol requeue 7", "scontrol update JobId=7 ExcNodeList=n5,n7"]),
            ("not known", {}, 1, []),
            ("n5", {"STATE": "COMPLETING"}, 1, []),
        ):
            said = says.format(nodes)
            put(self.root / "build/cpu/ztrain", STAND_INS["ztrain"].replace("exit 0", f'{{ echo "{said}" >&2; exit 1; }}'))
            self.assertEqual(self.submit({**NODE, **job}, "inputs/smoke.toml")[2:], calls)
            self.assertEqual(self.done.returncode, status)

    def test_a_task_of_an_array_speaks_for_itself_alone(self):
        """Also the one with the number of the array, which stands for all tasks."""
        stop = lambda process: process.send_signal(signal.SIGUSR1)
        asked = pathlib.Path(str(self.calls) + ".asked")
        for job in ("40", "43"):
            asked.write_text("")
            task = {"SLURM_JOB_ID": job, "SLURM_ARRAY_JOB_ID": "40", "SLURM_ARRAY_TASK_ID": "3", "TRAIN": "75", "EXCLUDED": "n9"}
            self.assertEqual(self.told_to_stop(task, stop), (0, ["saved", "scontrol requeue 40_3"]))
            self.calls.write_text("")
            without = ["bash", "-euc", f"restarts=0; source {self.root}/slurm/requeue.sh; requeue why n5"]
            subprocess.run(without, env=self.environment({**NODE, **task}), check=True, timeout=20)
            update = "scontrol update JobId=40_3 ExcNodeList=n5,n9"
            self.assertEqual(self.calls.read_text().splitlines(), ["scontrol requeue 40_3", update])
            self.assertEqual(set(re.findall(r"--jobs=(\S+)", asked.read_text())), {"40_3"})

    def test_a_job_that_is_restarted_too_often_stays_away(self):
        stop = lambda process: process.send_signal(signal.SIGUSR1)
        self.assertEqual(self.told_to_stop({"TRAIN": "75", "SLURM_RESTART_COUNT": "50"}, stop), (1, ["saved"]))
        often = {"TRAIN": "75", "SLURM_RESTART_COUNT": "50", "ZTRAIN_RESTARTS": "51"}
        self.assertEqual(self.told_to_stop(often, stop)[1], ["saved", "scontrol requeue 7"])

    def test_ranks_learn_when_the_job_ends(self):
        ends = pathlib.Path(str(self.calls) + ".ends")
        for job, said in (({}, "never"), ({"ENDS": "2026-05-04T03:02:01", "TZ": "UTC"}, "1777863721"), ({"ENDS": "N/A"}, "never")):
            ends.write_text("")
            self.start({**NODE, **job})
            self.assertEqual(ends.read_text(), said + "\n")

    def test_ranks_that_stop_by_themselves_are_started_again_while_the_job_runs(self):
        """As near the end of the allocation. Where SLURM takes the job from its nodes it knows whether it is to come back."""

        def stop(process):
            for child in zt.descendants(process.pid):
                try:
                    if b"inputs/smoke.toml" in pathlib.Path(f"/proc/{child}/cmdline").read_bytes():
                        os.kill(child, signal.SIGUSR1)
                except FileNotFoundError:
                    pass  # of what a stand-in runs in its loop

        self.assertEqual(self.told_to_stop({"TRAIN": "75"}, stop), (0, ["saved", "scontrol requeue 7"]))
        self.assertEqual(self.told_to_stop({"TRAIN": "75", "STATE": "COMPLETING"}, stop), (75, ["saved"]))
        self.assertEqual(self.told_to_stop({"TRAIN": "1"}, stop), (1, ["saved"]))

    def test_each_rank_has_a_log(self):
        says = "what the rank says"
        self.told_to_stop({"TRAIN": "75", "SAYS": says}, lambda process: process.send_signal(signal.SIGUSR1))
        log = (self.root / "ztrain-7.ranks/0.log").read_text()
        self.assertRegex(log, rf"^start 1, rank 0 on \S+: process \d+, cores [\d,-]+, memory of NUMA nodes [\d,-]+, \S+\n{says}\n$")
        self.start({**NODE, "ZTRAIN_LOGS": str(self.root / "elsewhere"), "ALSO": "3"})
        self.assertTrue((self.root / "elsewhere/3.log").exists())

    def preflight(self, environment, gpus="0", token=True):
        shared = self.root / "shared"
        shared.mkdir(exist_ok=True)
        (shared / "token").unlink(missing_ok=True)
        if token:
            (shared / "token").write_text("now\n")
        command = [self.root / "slurm/preflight_node.sh", shared, gpus]
        env = self.environment({"SLURMD_NODENAME": "n7", "ZTRAIN_LEAST_DISK": "0", **environment})
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env, check=True)
        self.assertRegex(done.stdout, r"(?m)^n7: memory \d+ GB, \d+ GB free; cores [\d,-]+ of this task; NUMA nodes: ")
        return re.findall(r"n7: (well|sick: .*)", done.stdout)

    def test_a_node_says_what_it_lacks(self):
        self.assertEqual(self.preflight({}), ["well"])
        self.assertRegex(self.preflight({"ZTRAIN_LEAST_MEMORY": "1000000"})[0], r"^sick: \d+ GB of memory are free, less than")
        self.assertRegex(self.preflight({"ZTRAIN_LEAST_DISK": "1000000"})[0], r"^sick: shared folder .* takes \d+ MB/s, less")
        self.assertRegex(self.preflight({}, token=False)[0], "^sick: it does not see .*: submit from a folder that all nodes share")
        self.assertRegex(self.preflight({"ZTRAIN_NVME": "/nowhere"})[0], "^sick: ZTRAIN_NVME /nowhere cannot be written")
        put(self.bin / "nvidia-smi", "#!/bin/sh\necho 'no driver'; exit 9\n")
        self.assertEqual(self.preflight({}, "2"), ["sick: nvidia-smi fails: no driver"])
        put(self.bin / "nvidia-smi", "#!/bin/sh\necho 'H100, 81559 MiB, 0'\n")
        self.assertEqual(self.preflight({}, "1"), ["well"])
        self.assertEqual(self.preflight({}, "2"), ["sick: 2 GPUs are the job's, and 1 are here"])
        put(self.bin / "nvidia-smi", "#!/bin/sh\necho 'H100, 81559 MiB, 3'\n")
        self.assertEqual(self.preflight({}, "1"), ["sick: a GPU has memory errors that were not corrected"])

    def test_a_preflight_fails_if_data_go_past_a_fast_network(self):
        job = {**NODE, "SLURM_JOB_NODELIST": "n7", "SLURMD_NODENAME": "n7", "ZTRAIN_LEAST_DISK": "0"}
        for said, more, code in (
            ("network n7: MPI by pml ucx", {}, 0),
            ("slow network n7: MPI goes over TCP past Slingshot (cxi0): sites set FI_PROVIDER=cxi", {}, 1),
            ("slow network n7: MPI goes over TCP past Slingshot (cxi0)", {"ZTRAIN_ALLOW_TCP": "1"}, 0),
        ):
            put(self.root / "build/cpu/ztrain", f"#!/bin/sh\necho '{said}'\n")
            self.submit({**job, **more}, script="preflight.sh")
            self.assertEqual(self.done.returncode, code, self.done.stdout + self.done.stderr)
            self.assertIn(said, self.done.stdout)
            self.assertEqual('data go over TCP past a faster network ("slow network" above)' in self.done.stderr, code == 1)

    def test_the_scripts_ask_for_what_they_are_named_after(self):
        """Each with its own deck, or with one that is given."""
        self.build_for_gpus()
        asked = {}
        for script in sorted((self.root / "slurm").glob("train_*.sh")):
            asked[script.name] = re.findall(r"(?m)^#SBATCH --([\w-]+)=(\d+)$", script.read_text())
            job = {**GPUS, "ZTRAIN_DATA": "/data", "SLURM_SUBMIT_DIR": str(self.root)}
            for words in ((), ("inputs/smoke.toml", "--run.steps=3"), ("--run.steps=3",)):
                calls = self.submit(job, *words, script=script.name)
                self.assertEqual(self.done.returncode, 0, self.done.stderr)
                deck = "smoke" if "inputs/smoke.toml" in words else r"\w+"
                self.assertRegex(calls[-1], rf"build/cuda/ztrain \S*inputs/{deck}\.toml ")
                self.assertIn(" ".join(words), calls[-1])
        self.assertIn(("gpus-per-node", "8"), asked["train_8gpu_node.sh"])
        self.assertIn(("ntasks-per-node", "8"), asked["train_8gpu_node.sh"])
        self.assertIn(("gpus-per-node", "8"), asked["train_70b.sh"])
        self.assertIn(("nodes", "1"), asked["train_8b.sh"])
        self.assertEqual(len(asked), 4)

    def test_a_sweep_tries_each_combination_once(self):
        array = {**NODE, "SLURM_SUBMIT_DIR": str(self.root), "SLURM_ARRAY_JOB_ID": "40", "SLURM_JOB_NAME": "tries"}
        words = ("inputs/smoke.toml", "optimizer.lr=1e-4,3e-4,1e-3", "--run.steps=5", "batch.global=32,64")
        found = []
        for task in range(6):
            *_, program = self.submit({**array, "SLURM_ARRAY_TASK_ID": str(task)}, *words, script="array_sweep.sh")
            self.assertEqual(self.done.returncode, 0, self.done.stderr)
            rate, batch = re.search(r"smoke.toml --run.steps=5 --optimizer.lr=(\S+) --batch.global=(\S+) ", program).groups()
            self.assertIn(f"--run.output=runs/tries-40/optimizer.lr={rate},batch.global={batch} ", program)
            found.append((rate, batch))
        self.assertEqual(found, [(rate, batch) for rate in ("1e-4", "3e-4", "1e-3") for batch in ("32", "64")])
        self.assertNotIn("--checkpoint.export", program)
        deck = self.root / "inputs/exports.toml"
        deck.write_text((self.root / "inputs/smoke.toml").read_text().replace("[checkpoint]\n", '[checkpoint]\nexport = "model"\n'))
        lists = ("inputs/exports.toml", "optimizer.betas=[0.9,0.95],[0.9,0.99]", "lora.targets=[a,b],c,[d]")
        job = {**array, "SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_MIN": "3", "SLURM_ARRAY_TASK_COUNT": "2"}
        *_, program = self.submit(job, *lists, script="array_sweep.sh")
        self.assertIn("of 6 combinations this array has 2\n", self.done.stdout)
        output = "runs/tries-40/optimizer.betas=[0.9,0.99],lora.targets=[a,b]"
        own = f"--run.output={output} --checkpoint.folder={output}/checkpoints --checkpoint.export={output}/model"
        self.assertIn(f" --optimizer.betas=[0.9,0.99] --lora.targets=[a,b] {own} ", program)
        for task, value in enumerate(("[[1,2],3]", "[4]")):
            for text, exports in (('# export = "model"\n', False), ('export = ""  # "none"\n', False), ("checkpoint.export = 'model'\n", True)):
                deck.write_text(text)
                job = {**array, "SLURM_ARRAY_TASK_ID": str(task), "SLURM_ARRAY_TASK_MIN": "0", "SLURM_ARRAY_TASK_COUNT": "2"}
                *_, program = self.submit(job, "inputs/exports.toml", "a.b=[[1,2],3],[4]", script="array_sweep.sh")
                self.assertIn(f" --a.b={value} --run.output=", program)
                self.assertEqual("--checkpoint.export=" in program, exports)
                self.assertNotIn("combinations this array has", self.done.stdout)
        outside = {**array, "SLURM_ARRAY_TASK_ID": "0", "SLURM_ARRAY_TASK_COUNT": "1"}
        *_, program = self.submit(outside, "inputs/smoke.toml", "model.from=x/../../../50%", script="array_sweep.sh")
        self.assertIn(" --model.from=x/../../../50% --run.output=runs/tries-40/model.from=x%2F..%2F..%2F..%2F50%25 ", program)
        self.submit({**array, "SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_TASK_MIN": "0", "SLURM_ARRAY_TASK_COUNT": "2"}, *words, script="array_sweep.sh")
        self.assertNotIn("combinations this array has", self.done.stdout, "which the first task says")
        where = ("checkpoint.folder", "checkpoint.export", "run.output")
        for job, wrong, said in (
            *(({"SLURM_ARRAY_TASK_ID": "0"}, (*words, f"{dashes}{key}=here"), "says where runs lie") for key in where for dashes in ("--", "")),
            ({"SLURM_ARRAY_TASK_ID": "0"}, ("inputs/none.toml", "a.b=1"), "inputs/none.toml: no such deck"),
            ({"SLURM_ARRAY_TASK_ID": "6"}, words, r"6 combinations, and none for task 6: sbatch --array=0-5"),
            ({}, words, r"no job array: sbatch --array=0-5"),
            ({"SLURM_ARRAY_TASK_ID": "0"}, ("inputs/smoke.toml", "lr"), r"'lr' is neither KEY=VALUE"),
            ({"SLURM_ARRAY_TASK_ID": "0"}, ("inputs/smoke.toml", "--run.steps=5"), "which keys are to be varied"),
        ):
            self.assertEqual(self.submit({**array, **job}, *wrong, script="array_sweep.sh"), [])
            self.assertEqual(self.done.returncode, 1)
            self.assertRegex(self.done.stderr, "^slurm/array_sweep.sh: .*" + said)


if __name__ == "__main__":
    zt.main()
