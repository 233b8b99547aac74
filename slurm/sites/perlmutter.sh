# shellcheck shell=bash disable=SC2034
# Perlmutter of NERSC: 4 A100 and 64 cores (128 as SLURM counts) a node, Slingshot. The values are those of docs.nersc.gov ("Queues and
# Charges") and of HPE's list of variables for Slingshot. No job has run there. Build with the preset cuda-ampere. For GPUs of 80 GB
# submit with --constraint='gpu&hbm80g'.
site_options=(--constraint=gpu --qos=regular)
site_gpus=4
site_cores=128
# The site's module `nccl` brings the plugin for Slingshot. Without the plugin, NCCL_NET ends the job, which would else run over TCP.
site_network=(
  "NCCL_NET=AWS Libfabric" NCCL_SOCKET_IFNAME=hsn NCCL_NET_GDR_LEVEL=PHB NCCL_CROSS_NIC=1 NCCL_PROTO=^LL128
  FI_CXI_DEFAULT_CQ_SIZE=131072 FI_CXI_DEFAULT_TX_SIZE=2048 FI_CXI_DISABLE_HOST_REGISTER=1 FI_CXI_RX_MATCH_MODE=hybrid
  FI_CXI_RDZV_PROTO=alt_read FI_CXI_RDZV_THRESHOLD=0 FI_CXI_RDZV_GET_MIN=0 FI_CXI_RDZV_EAGER_SIZE=0 FI_MR_CACHE_MONITOR=userfaultfd
  MPICH_GPU_SUPPORT_ENABLED=0
)
