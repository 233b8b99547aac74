"""What tools/kernel_report.py refuses of GPU kernels, and how it reads what the compiler says: on texts, without a compiler."""

import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(os.environ["ZTRAIN_SOURCE"]) / "tools"))
import kernel_report  # noqa: E402
import kernel_sources  # noqa: E402
from kernel_limits import Kernel, block_registers, refused  # noqa: E402

PTX = """
.visible .entry _Z3addPfx(
	.param .u64 .ptr .global .align 4 _Z3addPfx_param_0,
	.param .u32 _Z3addPfx_param_1,
	.param .align 8 .b8 _Z3addPfx_param_2[72]
)
.maxntid 256, 1, 1
.minnctapersm 2
{
	ret;
}
.visible .entry _Z4freev()
{
	ret;
}
"""

PTXAS = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z3addPfx' for 'sm_90a'
ptxas info    : Function properties for _Z3addPfx
    16 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 16 bytes cumulative stack size
ptxas info    : Compiling entry function '_Z4freev' for 'sm_90a'
ptxas info    : Function properties for _Z4freev
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers
"""


class Limits(unittest.TestCase):
    def kernel(self, **changes):
        fields = dict(name="k", arch="sm_90a", registers=64, threads=256)
        return Kernel(**(fields | changes))

    def assert_refused(self, part, **changes):
        found = list(refused(self.kernel(**changes)))
        self.assertEqual(len(found), 1, found)
        self.assertIn(part, found[0])
        self.assertTrue(found[0].startswith("k (sm_90a)"), found[0])

    def test_what_is_as_it_should_be(self):
        for changes in ({}, {"registers": 255}, {"registers": 128, "resident": 2}, {"parameters": 4096},
                        {"threads": 1024}, {"launch": "local_memory"}, {"threads": 0, "bounded": False}):
            self.assertEqual(list(refused(self.kernel(**changes))), [], changes)

    def test_local_memory(self):
        for changes in ({"stack": 8}, {"local": 1}, {"spilled": 4}):
            self.assert_refused("uses local memory", **changes)
            for name in ("normal_init<float>", "BackwardTeam<true, 4, bf16>", "BackwardLanes<2, double>"):
                self.assertEqual(list(refused(self.kernel(name=name, **changes))), [], f"{name} is excused")
            for name in ("BackwardTeam<true, 2, bf16>", "normal_initial", "doubled<float>"):
                self.assertNotEqual(list(refused(self.kernel(name=name, **changes))), [], name)

    def test_threads_and_registers(self):
        self.assert_refused("has no __launch_bounds__", threads=0)
        self.assert_refused("2 x 256 threads have 128 each", registers=129, resident=2)
        self.assert_refused("1 x 512 threads have 128 each", registers=136, threads=512)
        self.assert_refused("more than the 2048", registers=16, threads=1024, resident=3)

    def test_registers_are_given_to_warps_by_the_256(self):
        self.assertEqual(block_registers(self.kernel(registers=33, threads=33)), 2 * 1280)

    def test_launches(self):
        self.assert_refused("4104 bytes of parameters", parameters=4104)
        self.assert_refused("through constant memory", launch="constant_memory")


class Texts(unittest.TestCase):
    def test_bounds_and_parameters_are_those_of_the_entry(self):
        self.assertEqual(kernel_sources.bounds_of(PTX), {"_Z3addPfx": (256, 2, 88), "_Z4freev": (0, 0, 0)})

    def test_what_ptxas_says_goes_with_them(self):
        bounds = {"90a": kernel_sources.bounds_of(PTX)}
        add, free = kernel_sources.from_ptxas(PTXAS, bounds)
        self.assertEqual((add.name, add.arch, add.registers, add.stack, add.spilled), ("_Z3addPfx", "sm_90a", 40, 16, 12))
        self.assertEqual((add.threads, add.resident, add.parameters), (256, 2, 88))
        self.assertEqual((free.registers, free.stack, free.spilled, free.threads), (8, 0, 0, 0))
        with self.assertRaisesRegex(RuntimeError, "_Z3addPfx"):
            list(kernel_sources.from_ptxas(PTXAS, {"90a": {}}))

    def test_how_kokkos_launches_is_in_the_name(self):
        bounded, free, team = (Kernel(name, "sm_90a", registers=144) for name in "abc")
        kernel_report.read_launch(bounded, "void Kokkos::Impl::cuda_parallel_launch_local_memory<F<1>, 256u, 2u>(F<1>)")
        kernel_report.read_launch(free, "void Kokkos::Impl::cuda_parallel_launch_constant_memory<F<Kokkos::RangePolicy<C> > >()")
        kernel_report.read_launch(team, "void Kokkos::Impl::cuda_parallel_launch_local_memory<P<Kokkos::TeamPolicy<C> > >()")
        self.assertEqual((bounded.threads, bounded.resident, bounded.launch, bounded.bounded), (256, 2, "local_memory", False))
        self.assertEqual((free.threads, free.launch, free.bounded), (0, "constant_memory", False))
        self.assertIn("has no __launch_bounds__", *refused(team))

    def test_a_team_has_the_threads_of_its_bounds(self):
        team = "void Kokkos::Impl::cuda_parallel_launch_local_memory<P<Kokkos::TeamPolicy<C> >, {}u, 1u>(P<C>)"
        for threads, good in ((256, True), (512, False)):
            kernel = Kernel("a", "sm_90a", registers=154)
            kernel_report.read_launch(kernel, team.format(threads))
            self.assertEqual(list(refused(kernel)) == [], good, threads)


class Complaints(unittest.TestCase):
    """Of kernels that move data at memory speed."""

    def complaints(self, name, loads, stores):
        kernel = Kernel(name, "sm_90a", registers=32, threads=256, loads=loads, stores=stores)
        return [c for c in kernel_report.complaints([kernel]) if not c.endswith("is missing")]

    def test_accesses_of_16_bytes(self):
        self.assertEqual(self.complaints("add<float>", [3, 9], [1, 9]), [])
        self.assertEqual(self.complaints("add<float>", [0, 9], [1, 9]), ["add<float> (sm_90a) has no 16-byte loads"])
        self.assertEqual(self.complaints("cast<float, bf16>", [0, 9], [1, 9]), [])
        self.assertEqual(len(self.complaints("cast<float, bf16>", [0, 9], [0, 9])), 2)
        self.assertEqual(self.complaints("another", [0, 9], [0, 9]), [])

    def test_kernels_of_the_list_are_there(self):
        missing = [c for c in kernel_report.complaints([]) if c.endswith("is missing")]
        self.assertEqual(len(missing), len(kernel_report.WIDE))


if __name__ == "__main__":
    unittest.main()
