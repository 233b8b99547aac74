# shellcheck shell=bash disable=SC2034
# Isambard-AI of Bristol: 4 GH200 a node, Slingshot. The values are those of docs.isambard.ac.uk ("Job scheduling", its example for
# NCCL), but without GDRCopy and LL128, with which GH200 on Slingshot have got wrong sums (NCCL's issue 2001). No job has run there.
site_options=(--partition=workq)
site_gpus=4
site_cores=288
site_network=(
  "NCCL_NET=AWS Libfabric" NCCL_SOCKET_IFNAME=hsn NCCL_NET_GDR_LEVEL=PHB NCCL_CROSS_NIC=1 NCCL_MIN_NCHANNELS=4 NCCL_NET_FORCE_FLUSH=0
  NCCL_PROTO=^LL128
  FI_CXI_DEFAULT_CQ_SIZE=131072 FI_CXI_DEFAULT_TX_SIZE=2048 FI_CXI_DISABLE_NON_INJECT_MSG_IDC=1 FI_CXI_DISABLE_HOST_REGISTER=1
  FI_MR_CACHE_MONITOR=userfaultfd FI_CXI_RDZV_PROTO=alt_read FI_CXI_RDZV_THRESHOLD=0 FI_CXI_RDZV_GET_MIN=0 FI_CXI_RDZV_EAGER_SIZE=0
  FI_CXI_RX_MATCH_MODE=hybrid
)
