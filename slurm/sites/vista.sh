# shellcheck shell=bash disable=SC2034
# Vista of TACC: 1 GH200 and 72 cores a node, InfiniBand, which NCCL and UCX find by themselves. The values are those of Cornell's
# workshop on Vista ("System Components"); the partition is known from users' scripts. No job has run there. Jobs have whole nodes, and
# SLURM does not count the GPUs of a node.
site_options=(--partition=gh)
site_gpus=1
site_cores=72
site_counts=0
