/* Preloaded into ranks: the clock jumps by as many seconds as the file $CHAOS_CLOCK holds. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t* jump;

__attribute__((constructor)) static void map_jump(void) {
  const char* path = getenv("CHAOS_CLOCK");
  int file = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void* mapped = mmap(NULL, sizeof *jump, PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (mapped != MAP_FAILED) jump = mapped;
}

int clock_gettime(clockid_t clock, struct timespec* now) {
  int status = (int)syscall(SYS_clock_gettime, clock, now);
  if (status == 0 && clock == CLOCK_REALTIME && jump != NULL) now->tv_sec += *jump;
  return status;
}

int gettimeofday(struct timeval* now, void* zone) {
  (void)zone;
  struct timespec exact;
  int status = clock_gettime(CLOCK_REALTIME, &exact);
  now->tv_sec = exact.tv_sec;
  now->tv_usec = exact.tv_nsec / 1000;
  return status;
}

time_t time(time_t* seconds) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (seconds != NULL) *seconds = now.tv_sec;
  return now.tv_sec;
}
