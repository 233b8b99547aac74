# Spack 1.0 or later builds ztrain from a checkout:
#   spack repo add tools/packaging/spack_repo/ztrain
#   spack develop --path $PWD ztrain@=0.1.0 && spack install ztrain@0.1.0 +cuda cuda_arch=90
# For +cuda run tools/install_cuda_headers.sh first: Spack has no package of cudnn-frontend, and CMake looks for it below the checkout.
from spack_repo.builtin.build_systems.cmake import CMakePackage, generator
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *

# The instruction sets that kernels are written for, as the presets cuda and cuda-ampere have them.
ARCHITECTURES = {"80": "80-real", "90": "90a-real"}


class Ztrain(CMakePackage, CudaPackage):
    """Trainer of large transformer models over MPI: one executable, TOML decks, HDF5 checkpoints."""

    version("0.1.0")

    generator("ninja")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("mpi")
    depends_on("hdf5+mpi")
    depends_on("fmt")
    depends_on("nlohmann-json")
    depends_on("tomlplusplus")
    depends_on("yaml-cpp")
    depends_on("cli11")
    depends_on("xxhash")
    depends_on("liburing")
    depends_on("kokkos")
    depends_on("googletest", type="test")
    depends_on("onednn", when="~cuda")

    with when("+cuda"):
        depends_on("cuda@12:")
        depends_on("cudnn@9:")
        depends_on("nccl@2.26.2:")
        # Kokkos is static, so that `ztrain plan` starts on machines without a driver.
        depends_on("kokkos+cuda~shared")
        for arch in ARCHITECTURES:
            depends_on(f"kokkos cuda_arch={arch}", when=f"cuda_arch={arch}")

    def cmake_args(self):
        args = [
            self.define("ZTRAIN_NATIVE", False),
            self.define("ZTRAIN_TESTS", self.run_tests),
            self.define_from_variant("ZTRAIN_CUDA", "cuda"),
            self.define("Kokkos_ROOT", self.spec["kokkos"].prefix),
        ]
        if self.spec.satisfies("+cuda"):
            wanted = self.spec.variants["cuda_arch"].value
            unknown = [arch for arch in wanted if arch not in ARCHITECTURES]
            if unknown:
                raise InstallError(f"cuda_arch={','.join(unknown)}: ztrain has kernels for {', '.join(ARCHITECTURES)}")
            args += [
                self.define("CMAKE_CUDA_ARCHITECTURES", [ARCHITECTURES[arch] for arch in wanted]),
                self.define("NCCL_ROOT", self.spec["nccl"].prefix),
                self.define("CUDNN_ROOT", self.spec["cudnn"].prefix),
            ]
        return args
