# shellcheck shell=bash disable=SC2034
# Alps of CSCS, cluster Clariden: 4 GH200 a node, Slingshot. The values are those
# of docs.cscs.ch ("Clariden", "NCCL", "EDF reference"). No job has run there.
# ZTRAIN_EDF: the container's definition, such as tools/packaging/ztrain-edf.toml; without it ranks run in the job's own environment.
site_options=(--partition=normal)
site_account=named
site_gpus=4
site_cores=288
[ -z "${ZTRAIN_EDF:-}" ] || site_launch=(--environment="$ZTRAIN_EDF")
# The container engine's hook sets these variables too. MPI must not carry memory of GPUs, because MPI and NCCL could then wait for
# each other.
site_network=(
  "NCCL_NET=AWS Libfabric" NCCL_NET_GDR_LEVEL=PHB NCCL_CROSS_NIC=1 NCCL_PROTO=^LL128
  FI_CXI_DEFAULT_CQ_SIZE=131072 FI_CXI_DEFAULT_TX_SIZE=32768 FI_CXI_DISABLE_HOST_REGISTER=1 FI_CXI_RX_MATCH_MODE=software
  FI_MR_CACHE_MONITOR=userfaultfd MPICH_GPU_SUPPORT_ENABLED=0
)
