"""tools/bundle.sh: what it makes needs nothing of this machine but the C library, and starts ranks."""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import ztrain_run as zt

TOOL = zt.SOURCE / "tools" / "bundle.sh"
OF_THE_SYSTEM = re.compile(r"/(ld-linux[^/]*|lib(c|m|dl|pthread|rt|resolv|util|mvec|anl))\.so")


def call(*words, **more):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=120, check=False, **more)


class Bundle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="ztrain-bundle-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name).resolve()
        (cls.folder / "build").mkdir()
        (cls.folder / "build" / "ztrain").symlink_to(os.environ["ZTRAIN"])
        cls.made = call(TOOL, "--build", "build", "--out", "out", cwd=cls.folder)
        cls.out = cls.folder / "out"

    def test_every_library_is_in_it(self):
        self.assertEqual(self.made.returncode, 0, self.made.stdout + self.made.stderr)
        plugins = [*(self.out / "mpi" / "plugins").glob("mca_*.so"), *(self.out / "mpi" / "pmix").glob("*.so")]
        self.assertGreater(len(plugins), 20)
        listed = call(self.out / "run.sh", "ldd", self.out / "build" / "ztrain", self.out / "mpi" / "bin" / "mpirun", *plugins)
        self.assertNotIn("not found", listed.stdout)
        paths = set(re.findall(r"=> (\S+)", listed.stdout))
        strange = [path for path in paths if not path.startswith(str(self.out)) and not OF_THE_SYSTEM.search(path)]
        self.assertEqual(strange, [])
        self.assertTrue(any("libmpi" in path for path in paths) and any("libhdf5" in path for path in paths))

    def test_ranks_start_with_its_own_mpi(self):
        done = call(self.out / "acceptance.sh", "--only", "facts,libraries", "--out", self.folder / "told")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("PASS two ranks: ", done.stdout)
        self.assertIn(str(self.out / "mpi" / "bin" / "mpirun"), done.stdout)
        opened = call(self.out / "run.sh", "mpirun", "--allow-run-as-root", "-np", "1", "cat", "/proc/self/environ")
        self.assertIn(f"OPAL_PKGLIBDIR={self.out}/mpi/plugins", opened.stdout)

    def test_mistakes(self):
        mine = self.folder / "mine"
        mine.mkdir()
        (mine / "run.sh").touch()
        for words, told in ((("--build", "nowhere"), "there is no "), (("--build", "build", "--out", mine), "is there and is no bundle"),
                            (("--biuld",), "'--biuld' is no option")):
            done = call(TOOL, *words, cwd=self.folder)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(told, done.stderr)
        self.assertTrue((mine / "run.sh").is_file())
        self.assertIn("--out FOLDER", call(TOOL, "--help").stdout)


if __name__ == "__main__":
    zt.main()
