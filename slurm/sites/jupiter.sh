# shellcheck shell=bash disable=SC2034
# JUPITER Booster of JSC: 4 GH200 a node, InfiniBand, which NCCL and UCX find by themselves. The values are those of
# apps.fz-juelich.de/jsc/hps/jupiter ("Configuration", "Batch system"). psid starts the ranks there, so set ZTRAIN_MPI to a name that
# `srun --mpi=list` shows. No job has run there.
site_options=(--partition=booster)
site_account=named
site_gpus=4
site_cores=288
