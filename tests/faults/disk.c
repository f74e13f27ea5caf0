/* A disk that goes wrong as the file $HALOG_DISK says at any moment: a byte for reads that fail, one for writes that
 * fail, one for how many hundredths of a second each flush takes. Of files below $HALOG_DISK_BELOW only. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#undef fread_unlocked

enum { READS, WRITES, FLUSHES, HITS };

static volatile unsigned char *now(void) {
    static volatile unsigned char *state;
    if (!state) {
        const char *file = getenv("HALOG_DISK");
        int fd = file ? open(file, O_RDWR | O_CLOEXEC) : -1;
        static unsigned char fine[HITS + 1];
        void *found = fd < 0 ? MAP_FAILED : mmap(0, HITS + 1, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        state = found == MAP_FAILED ? fine : found;
    }
    return state;
}

static int wrong(int what, int fd) {
    if (!now()[what]) return 0;
    const char *below = getenv("HALOG_DISK_BELOW");
    char link[64], path[PATH_MAX + 1];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX);
    if (!below || length <= 0) return 0;
    path[length] = 0;
    if (strncmp(path, below, strlen(below))) return 0;
    now()[HITS] = 1;
    return now()[what];
}

#define REAL(name, type) static __typeof__(type) real; if (!real) real = dlsym(RTLD_NEXT, name)
#define FAILS(what, fd) if (wrong(what, fd)) { errno = EIO; return -1; }

typedef ssize_t (*read_t)(int, void *, size_t);
typedef ssize_t (*write_t)(int, const void *, size_t);
typedef ssize_t (*pread_t)(int, void *, size_t, off_t);
typedef ssize_t (*pwrite_t)(int, const void *, size_t, off_t);

ssize_t read(int fd, void *to, size_t n) { REAL("read", read_t); FAILS(READS, fd); return real(fd, to, n); }
ssize_t write(int fd, const void *from, size_t n) { REAL("write", write_t); FAILS(WRITES, fd); return real(fd, from, n); }
ssize_t pread(int fd, void *to, size_t n, off_t at) { REAL("pread", pread_t); FAILS(READS, fd); return real(fd, to, n, at); }
ssize_t pread64(int fd, void *to, size_t n, off_t at) { REAL("pread64", pread_t); FAILS(READS, fd); return real(fd, to, n, at); }
ssize_t pwrite(int fd, const void *from, size_t n, off_t at) { REAL("pwrite", pwrite_t); FAILS(WRITES, fd); return real(fd, from, n, at); }
ssize_t pwrite64(int fd, const void *from, size_t n, off_t at) { REAL("pwrite64", pwrite_t); FAILS(WRITES, fd); return real(fd, from, n, at); }

size_t fread_unlocked(void *to, size_t size, size_t n, FILE *from) {
    REAL("fread_unlocked", size_t (*)(void *, size_t, size_t, FILE *));
    if (wrong(READS, fileno(from))) { errno = EIO; return 0; }
    return real(to, size, n, from);
}

static int flush(const char *name, int fd) {
    int hundredths = wrong(FLUSHES, fd);
    struct timespec slow = {hundredths / 100, hundredths % 100 * 10000000L};
    if (hundredths) nanosleep(&slow, 0);
    return ((int (*)(int))dlsym(RTLD_NEXT, name))(fd);
}

int fsync(int fd) { return flush("fsync", fd); }
int fdatasync(int fd) { return flush("fdatasync", fd); }
