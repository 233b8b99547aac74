# Provides ztrain::cuda: the CUDA runtime, cuBLASLt, cuDNN with its C++ graph interface (cudnn-frontend), and NCCL.
# Hints: the toolkit's own folder; NCCL_ROOT, CUDNN_ROOT, CUDNN_FRONTEND_ROOT.
# Without cudnn-frontend ZTRAIN_CUDNN_FRONTEND_INCLUDE is false and all else is there.
include(FindPackageHandleStandardArgs)
set(hints ${CUDAToolkit_TARGET_DIR} ${CUDAToolkit_LIBRARY_ROOT} ${CUDAToolkit_LIBRARY_DIR}/..)
find_path(ZTRAIN_NCCL_INCLUDE nccl.h HINTS ${NCCL_ROOT} $ENV{NCCL_ROOT} ${hints} PATH_SUFFIXES include)
find_library(ZTRAIN_NCCL_LIBRARY nccl HINTS ${NCCL_ROOT} $ENV{NCCL_ROOT} ${hints} PATH_SUFFIXES lib lib64)
find_path(ZTRAIN_CUDNN_INCLUDE cudnn.h HINTS ${CUDNN_ROOT} $ENV{CUDNN_ROOT} ${hints} PATH_SUFFIXES include)
find_library(ZTRAIN_CUDNN_LIBRARY cudnn HINTS ${CUDNN_ROOT} $ENV{CUDNN_ROOT} ${hints} PATH_SUFFIXES lib lib64)
find_path(ZTRAIN_CUDNN_FRONTEND_INCLUDE cudnn_frontend.h HINTS ${CUDNN_FRONTEND_ROOT} $ENV{CUDNN_FRONTEND_ROOT}
  ${PROJECT_SOURCE_DIR}/build/cudnn-frontend ${hints} PATH_SUFFIXES include)
find_package_handle_standard_args(ZtrainCudaLibraries
  REQUIRED_VARS ZTRAIN_NCCL_LIBRARY ZTRAIN_NCCL_INCLUDE ZTRAIN_CUDNN_LIBRARY ZTRAIN_CUDNN_INCLUDE
  REASON_FAILURE_MESSAGE "NCCL and cuDNN 9 are needed beside the CUDA toolkit: set NCCL_ROOT and CUDNN_ROOT")
if(ZtrainCudaLibraries_FOUND AND NOT TARGET ztrain::cuda)
  add_library(ztrain_cuda INTERFACE)
  add_library(ztrain::cuda ALIAS ztrain_cuda)
  target_include_directories(ztrain_cuda SYSTEM INTERFACE ${ZTRAIN_NCCL_INCLUDE} ${ZTRAIN_CUDNN_INCLUDE})
  if(ZTRAIN_CUDNN_FRONTEND_INCLUDE)
    target_include_directories(ztrain_cuda SYSTEM INTERFACE ${ZTRAIN_CUDNN_FRONTEND_INCLUDE})
    # Graphs as JSON, which is half of the time that its headers take to compile.
    target_compile_definitions(ztrain_cuda INTERFACE CUDNN_FRONTEND_SKIP_JSON_LIB)
  endif()
  target_link_libraries(ztrain_cuda INTERFACE CUDA::cudart CUDA::cublasLt ${ZTRAIN_CUDNN_LIBRARY}
    ${ZTRAIN_NCCL_LIBRARY})
  if(ZTRAIN_CUDNN_FRONTEND_INCLUDE)
    # Its headers call nvrtc; CMake's target for that would pull in the driver's library.
    target_link_libraries(ztrain_cuda INTERFACE ${CUDA_nvrtc_LIBRARY})
  endif()
endif()
