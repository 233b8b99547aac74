// Makes one kind of a process' calls slower. tests/regress/slowed.py preloads this library. ZTRAIN_SLOW_CALL names the kind (compute,
// send, read, ring), and ZTRAIN_SLOW_MS the milliseconds that each such call takes longer. ZTRAIN_SLOW_RANK is the only rank to slow
// (unset: all ranks).
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

static void delay(const char* kind) {
  const char *chosen = getenv("ZTRAIN_SLOW_CALL"), *only = getenv("ZTRAIN_SLOW_RANK"), *rank = getenv("OMPI_COMM_WORLD_RANK");
  if (!chosen || strcmp(chosen, kind) != 0 || (only && rank && strcmp(only, rank) != 0)) return;
  const long microseconds = (long)(1e3 * atof(getenv("ZTRAIN_SLOW_MS")));
  const struct timespec time = {microseconds / 1000000, microseconds % 1000000 * 1000};
  nanosleep(&time, NULL);
}

// Defines NAME, which calls the function that would have been found without this library.
#define SLOW(KIND, RESULT, NAME, PARAMETERS, ARGUMENTS)              \
  RESULT NAME PARAMETERS {                                           \
    RESULT(*next) PARAMETERS = (RESULT(*) PARAMETERS)dlsym(RTLD_NEXT, #NAME); \
    delay(KIND);                                                     \
    return next ARGUMENTS;                                           \
  }

SLOW("compute", int, dnnl_primitive_execute, (const void* primitive, void* stream, int count, const void* arguments),
     (primitive, stream, count, arguments))
SLOW("send", int, MPI_Isend, (const void* data, int count, void* type, int peer, int tag, void* comm, void* request),
     (data, count, type, peer, tag, comm, request))
SLOW("read", ssize_t, pread, (int file, void* bytes, size_t count, off_t offset), (file, bytes, count, offset))
SLOW("read", ssize_t, pread64, (int file, void* bytes, size_t count, off_t offset), (file, bytes, count, offset))
SLOW("ring", int, io_uring_submit, (void* ring), (ring))
