"""Tests profiles of clusters: the words that slurm/submit.sh gives sbatch, and those that slurm/launch.sh gives the ranks. Compares recipes of
packages with CMake's options and packages."""

import ast
import json
import pathlib
import re
import shlex
import subprocess
import tomllib
import unittest

import ztrain_run as zt
from slurm_stand_ins import NODE, Scripts, put

PACKAGING = zt.SOURCE / "tools/packaging"
SBATCH = '#!/usr/bin/env bash\n{ printf "%q " sbatch "$@"; echo; echo "$ZTRAIN_SITE $ZTRAIN_ROOT"; } >> "$CALLS"\n'
# The options with which a script of 64 ranks is submitted at each site.
OPTIONS = {
    "alps": "--partition=normal --nodes=16 --ntasks-per-node=4 --gpus-per-node=4 --cpus-per-task=72",
    "isambard-ai": "--partition=workq --nodes=16 --ntasks-per-node=4 --gpus-per-node=4 --cpus-per-task=72",
    "jupiter": "--partition=booster --nodes=16 --ntasks-per-node=4 --gpus-per-node=4 --cpus-per-task=72",
    "leonardo": "--partition=boost_usr_prod --nodes=16 --ntasks-per-node=4 --gpus-per-node=4 --cpus-per-task=8",
    "perlmutter": "--constraint=gpu --qos=regular --nodes=16 --ntasks-per-node=4 --gpus-per-node=4 --cpus-per-task=32",
    "vista": "--partition=gh --nodes=64 --ntasks-per-node=1 --gpus-per-node=0 --cpus-per-task=72",
}
SLINGSHOT = {"alps", "isambard-ai", "perlmutter"}


class Sites(Scripts):
    def setUp(self):
        super().setUp()
        put(self.bin / "sbatch", SBATCH)

    def ask(self, site, *words, **more):
        job = {"ZTRAIN_SITE": site, "ZTRAIN_ACCOUNT": "g1", **more}
        return self.submit({key: value for key, value in job.items() if value is not None}, *words, script="submit.sh")

    def test_each_site_is_asked_for_what_it_has(self):
        self.assertEqual({path.stem for path in (self.root / "slurm/sites").glob("*.sh")}, set(OPTIONS))
        for site, options in OPTIONS.items():
            line, exported = self.ask(site, "slurm/train_70b.sh", "my.toml", "--run.steps=3")
            self.assertEqual(line, f"sbatch {options} --account=g1 slurm/train_70b.sh my.toml --run.steps=3 ")
            self.assertEqual(exported, f"{site} {self.root}")
        self.assertEqual(self.ask("alps", "slurm/train_70b.sh", ZTRAIN_DRY_RUN="1"), [], "nothing is submitted")
        self.assertEqual(self.done.stdout, f"sbatch {OPTIONS['alps']} --account=g1 slurm/train_70b.sh \n")

    def test_what_a_user_says_comes_last(self):
        line, _ = self.ask("alps", "-t", "10", "--nodes=3", "slurm/train_8b.sh", "--a.b=[1, 2]", ZTRAIN_ACCOUNT=None, SBATCH_ACCOUNT="g2")
        self.assertEqual(shlex.split(line)[2:], [
            "--nodes=2", "--ntasks-per-node=4", "--gpus-per-node=4", "--cpus-per-task=72", "-t", "10", "--nodes=3", "slurm/train_8b.sh", "--a.b=[1, 2]",
        ])  # fmt: skip
        profile = self.root / "mine.sh"
        profile.write_text("site_options=(--partition=a --comment='two words')\nsite_gpus=2\nsite_cores=10\n")
        words = shlex.split(self.ask(str(profile), "slurm/train_8b.sh", ZTRAIN_ACCOUNT=None)[0])
        self.assertEqual(words[1:7], ["--partition=a", "--comment=two words", "--nodes=4", "--ntasks-per-node=2", "--gpus-per-node=2", "--cpus-per-task=5"])

    def test_what_is_missing_is_named(self):
        for site, words, more, said in (
            ("lumi", ("slurm/train_8b.sh",), {}, "ZTRAIN_SITE=lumi: there is no such profile; there are alps .* vista and paths of your own"),
            ("alps", ("slurm/train_8b.sh",), {"ZTRAIN_ACCOUNT": None}, "set ZTRAIN_ACCOUNT to the project that pays"),
            ("alps", ("slurm/gone.sh",), {}, "which script"),
            ("alps", ("slurm/guard.sh",), {}, "slurm/guard.sh does not say how many ranks it has"),
            ("", ("slurm/train_8b.sh",), {}, "set ZTRAIN_SITE to a name in .*slurm/sites"),
        ):
            self.assertEqual(self.ask(site, *words, **more), [])
            self.assertEqual(self.done.returncode, 1)
            self.assertRegex(self.done.stderr, "^slurm/submit.sh: " + said)

    def ranks_have(self, site, **more):
        """Returns the words that start the ranks there, and the ranks' environment."""
        self.build_for_gpus()
        calls = self.submit({**NODE, "ZTRAIN_SITE": site, **more}, "inputs/smoke.toml")
        self.assertEqual(self.done.returncode, 0, self.done.stderr)
        lines = pathlib.Path(f"{self.calls}.environment").read_text().splitlines()
        return calls, dict(line.split("=", 1) for line in lines if "=" in line)

    def test_ranks_have_the_network_of_the_site(self):
        for site in OPTIONS:
            _, environment = self.ranks_have(site, SLURM_GPUS_ON_NODE="4", NCCL_CROSS_NIC="0")
            self.assertEqual(environment.get("NCCL_NET"), "AWS Libfabric" if site in SLINGSHOT else None)
            self.assertEqual(environment.get("NCCL_PROTO"), "^LL128" if site in SLINGSHOT else None)
            self.assertEqual(environment["NCCL_CROSS_NIC"], "0", "what the user has set stays")
        calls, environment = self.ranks_have("vista")
        self.assertEqual(environment["SLURM_GPUS_ON_NODE"], "1", "SLURM does not count them there")
        self.assertIn("build/cuda/ztrain", calls[-1])

    def test_ranks_enter_the_container_of_the_site(self):
        gpus = {"SLURM_GPUS_ON_NODE": "4"}
        (srun, _), _ = self.ranks_have("alps", **gpus, ZTRAIN_EDF="/a/edf.toml")
        self.assertIn(" --environment=/a/edf.toml ", srun)
        (srun, _), _ = self.ranks_have("alps", **gpus)
        self.assertNotIn("--environment", srun)
        job = {**NODE, **gpus, "ZTRAIN_SITE": "alps", "ZTRAIN_EDF": "/a/edf.toml", "ZTRAIN_MPI": "mpirun"}
        self.assertEqual(self.submit(job, "inputs/smoke.toml"), [])
        self.assertRegex(self.done.stderr, "mpirun does not enter the container of ZTRAIN_SITE=alps")


# Names of packages in CMake's files, in Spack and in EasyBuild.
SPACK = {
    "MPI": "mpi", "Kokkos": "kokkos", "Dnnl": "onednn", "HDF5": "hdf5", "fmt": "fmt", "nlohmann_json": "nlohmann-json",
    "tomlplusplus": "tomlplusplus", "yaml-cpp": "yaml-cpp", "CLI11": "cli11", "XXHASH": "xxhash", "URING": "liburing",
}  # fmt: skip
EASYBUILD = {
    "Kokkos": "Kokkos", "HDF5": "HDF5", "fmt": "fmt", "nlohmann_json": "nlohmann_json", "tomlplusplus": "tomlplusplus",
    "yaml-cpp": "yaml-cpp", "CLI11": "CLI11", "XXHASH": "xxHash", "URING": "liburing",
}  # fmt: skip


class Recipes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cmake = [*sorted((zt.SOURCE / "cmake").glob("*.cmake")), zt.SOURCE / "CMakeLists.txt"]
        cls.cmake = "\n".join(path.read_text() for path in cmake)
        cls.found = {name.lower() for name in re.findall(r"(?:find_package|ztrain_need|pkg_check_modules)\((?:Ztrain)?([\w-]+)", cls.cmake)}
        cls.version = re.search(r"project\(ztrain VERSION ([\d.]+)", cls.cmake)[1]
        presets = json.loads((zt.SOURCE / "CMakePresets.json").read_text())["configurePresets"]
        cls.presets = {preset["name"]: preset for preset in presets}

    def assert_known(self, options, where):
        self.assertTrue(options, where)
        for option in options:
            if option.startswith("ZTRAIN_"):
                self.assertRegex(self.cmake, rf"(option|set)\({option} ", f"{where}: CMake has no {option}")
            elif not option.startswith(("CMAKE_", "Kokkos_ENABLE", "Kokkos_ARCH", "BUILD_SHARED")):
                self.assertRegex(self.cmake, rf"\b{option}\b", f"{where}: CMake has no {option}")

    def assert_has(self, names, packages, where):
        for package, name in packages.items():
            self.assertIn(package.lower(), self.found, f"{package} is no package of CMake's files")
            self.assertIn(name, names, where)

    def test_spack(self):
        folder = PACKAGING / "spack_repo/ztrain"
        self.assertEqual((folder / "repo.yaml").read_text(), "repo:\n  namespace: ztrain\n  api: v2.0\n")
        tree = ast.parse((folder / "packages/ztrain/package.py").read_text())
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        first = lambda name: [c.args[0].value for c in calls if getattr(c.func, "id", getattr(c.func, "attr", "")) == name and isinstance(c.args[0], ast.Constant)]
        self.assertEqual(first("version"), [self.version])
        self.assert_known([*first("define"), *first("define_from_variant")], "spack")
        self.assert_has({re.match(r"[\w-]+", spec)[0] for spec in first("depends_on")}, SPACK, "spack")
        self.assertIn(f"cmake@{re.search(r'cmake_minimum_required.VERSION ([0-9.]+)', self.cmake)[1]}:", first("depends_on"))
        (table,) = [node.value for node in tree.body if isinstance(node, ast.Assign)]
        built = {preset["cacheVariables"].get("CMAKE_CUDA_ARCHITECTURES") for preset in self.presets.values()} - {None}
        self.assertEqual(set(ast.literal_eval(table).values()), built)

    def test_easybuild(self):
        for path in PACKAGING.glob("*.eb"):
            recipe = {"SOURCE_TAR_GZ": "%(name)s-%(version)s.tar.gz", "SYSTEM": {"name": "system"}}
            exec(compile(path.read_text(), path, "exec"), recipe)  # as EasyBuild does
            suffix = recipe.get("versionsuffix", "")
            cuda = dict(entry[:2] for entry in recipe.get("dependencies", ())).get("CUDA", "")
            toolchain = "-".join(recipe["toolchain"].values())
            self.assertEqual(path.stem, f"{recipe['name']}-{recipe['version']}-{toolchain}{suffix.replace('%(cudaver)s', cuda)}")
            self.assertTrue({"easyblock", "homepage", "description", "sources", "moduleclass", "sanity_check_paths"} <= set(recipe))
            if recipe["name"] != "ztrain":
                continue
            self.assertEqual(recipe["version"], self.version)
            names = {entry[0] for entry in recipe["dependencies"] + recipe["builddependencies"]}
            self.assert_has(names, EASYBUILD, path.name)
            options = dict(re.findall(r"-D(\w+)=(\S+)", recipe["configopts"]))
            self.assert_known(options, path.name)
            preset = self.presets["cuda"]["cacheVariables"]
            for key in ("ZTRAIN_CUDA", "CMAKE_CUDA_ARCHITECTURES"):
                self.assertEqual(options[key], preset[key])

    def test_apptainer(self):
        path = PACKAGING / "apptainer.def"
        head, *parts = re.split(r"(?m)^%(\w+)\n", path.read_text())
        sections = dict(zip(parts[::2], parts[1::2]))
        self.assertEqual([line.split(":")[0] for line in head.split("\n") if line], ["Bootstrap", "From"])
        self.assertEqual(set(sections), {"help", "files", "post", "environment", "test", "runscript"})
        for name in ("post", "environment", "test", "runscript"):
            subprocess.run(["bash", "-n"], input=sections[name], text=True, check=True)
        self.assert_known(re.findall(r"-D(\w+)=", sections["post"]), path.name)
        for preset in re.findall(r"--preset (\S+)", sections["post"]):
            self.assertIn(preset, self.presets)
        for script in re.findall(r"(?m)^    (tools/\S+)", sections["post"]):
            self.assertTrue((zt.SOURCE / script).is_file(), script)

    def test_the_environment_of_a_container(self):
        edf = tomllib.loads((PACKAGING / "ztrain-edf.toml").read_text())
        types = {"image": str, "mounts": list, "workdir": str, "entrypoint": bool, "writable": bool, "base_environment": (str, list), "env": dict, "annotations": dict}
        for key, value in edf.items():
            self.assertIsInstance(value, types[key], key)
        self.assertTrue(all(isinstance(value, str) for value in edf["env"].values()))
        self.assertEqual(set(edf["annotations"]["com"]["hooks"]["aws_ofi_nccl"]), {"enabled", "variant"})


if __name__ == "__main__":
    zt.main()
