# shellcheck shell=bash disable=SC2034
# Leonardo Booster of CINECA: 4 A100 of 64 GB and 32 cores a node, InfiniBand, which NCCL and UCX find by themselves. The values are
# those of docs.hpc.cineca.it ("Leonardo"). No job has run there. Build with the preset cuda-ampere.
site_options=(--partition=boost_usr_prod)
site_account=named
site_gpus=4
site_cores=32
