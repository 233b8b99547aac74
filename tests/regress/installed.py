"""Tests the tree that `cmake --install` makes: it works after it was moved, and CMake and module systems find its parts. If packages are
missing, CMake names all of them at once."""

import os
import pathlib
import shutil
import subprocess

import ztrain_run as zt

CONSUMER = """cmake_minimum_required(VERSION 3.22)
project(consumer NONE)
find_package(ztrain 0.1 REQUIRED)
get_target_property(executable ztrain::ztrain LOCATION)
message(STATUS "executable=${executable} data=${ztrain_DATA_DIR}")
"""
# The commands of Environment Modules and Lmod that the modulefile uses.
MODULE = """proc module-whatis text {}
proc conflict name {}
proc prepend-path {name value} {puts "$name=$value"}
proc setenv {name value} {puts "$name=$value"}
set ModulesCurrentModulefile [lindex $argv 0]
source $ModulesCurrentModulefile
"""


class Installed(zt.Case):
    def call(self, *words, code=0):
        done = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def install(self):
        """Returns the root of an installed tree that has been moved."""
        build = pathlib.Path(zt.EXECUTABLE).parent
        self.call("cmake", "--install", build, "--prefix", self.folder / "first")
        shutil.move(self.folder / "first", self.folder / "moved")
        return self.folder / "moved"

    def test_a_moved_tree_works(self):
        root = self.install()
        self.assertIn("built for", self.call(root / "bin/ztrain", "--version"))
        self.assertIn("the deck is valid", self.call(root / "bin/ztrain", "check", root / "share/ztrain/inputs/smoke.toml", "--without-files"))
        for path in root.rglob("*"):
            if path.is_file() and path.parent.name != "bin":
                for gone in (self.folder / "first", zt.SOURCE):
                    self.assertNotIn(os.fsencode(gone), path.read_bytes(), path)
        (self.folder / "CMakeLists.txt").write_text(CONSUMER)
        found = self.call("cmake", "-S", self.folder, "-B", self.folder / "consumer", f"-DCMAKE_PREFIX_PATH={root}")
        self.assertIn(f"executable={root}/bin/ztrain data={root}/share/ztrain\n", found)
        if shutil.which("tclsh"):
            (self.folder / "module.tcl").write_text(MODULE)
            linked = self.folder / "modules" / "ztrain"
            linked.parent.mkdir()
            (modulefile,) = (root / "share/modulefiles/ztrain").iterdir()
            linked.symlink_to(modulefile)
            for path in (modulefile, linked):
                loaded = self.call("tclsh", self.folder / "module.tcl", path)
                self.assertEqual(loaded, f"PATH={root}/bin\nCMAKE_PREFIX_PATH={root}\nZTRAIN_ROOT={root}/share/ztrain\n")

    def test_all_missing_packages_are_named_at_once(self):
        nowhere = [f"-DCMAKE_FIND_USE_{paths}_PATH=OFF" for paths in ("SYSTEM_ENVIRONMENT", "CMAKE_SYSTEM", "CMAKE_ENVIRONMENT")]
        tools = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={shutil.which('ninja')}", "-DCMAKE_CXX_COMPILER=/usr/bin/c++",
                 "-DCMAKE_C_COMPILER=/usr/bin/cc"]
        said = self.call("cmake", "-S", zt.SOURCE, "-B", self.folder / "build", "-DZTRAIN_URING=ON", *tools, *nowhere, code=1)
        for title, root in (("MPI (Open MPI, MPICH or a descendant)", "MPI_HOME"), ("Kokkos", "Kokkos_ROOT"), ("oneDNN", "dnnl_ROOT"),
                            ("toml++", "tomlplusplus_ROOT"), ("xxhash", "xxhash_ROOT"),
                            ("liburing (-DZTRAIN_URING=OFF does without)", "liburing_ROOT")):
            self.assertIn(f"\n    {title}: -D{root}=FOLDER\n", said)
        self.assertEqual(said.count("CMake Error"), 1, said)


if __name__ == "__main__":
    zt.main()
