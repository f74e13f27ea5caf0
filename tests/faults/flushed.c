/* Writes down how much of each file its process has flushed: "<size> <path>\n" into $HALOG_FLUSHED, once per flush.
   Whoever opens what names the run of the machine is given $HALOG_RUN instead: it is another one after a loss of power.
   Such a process does not know which network namespace it is in, so that nobody takes it for one elsewhere. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void note(int fd, off_t size) {
    static int out = -1;
    if (out < 0) {
        const char *file = getenv("HALOG_FLUSHED");
        if (!file || (out = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) < 0) return;
    }
    char link[64], path[PATH_MAX + 1], line[PATH_MAX + 64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX);
    if (length <= 0) return;
    path[length] = 0;
    int written = snprintf(line, sizeof line, "%lld %s\n", (long long)size, path);
    if (write(out, line, written) != written) abort();
}

static int flush(const char *name, int fd) {
    struct stat before;
    int known = fstat(fd, &before) == 0; /* what is written during the flush is not counted */
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    int result = real(fd);
    if (result == 0 && known) note(fd, before.st_size);
    return result;
}

int fsync(int fd) { return flush("fsync", fd); }
int fdatasync(int fd) { return flush("fdatasync", fd); }

static const char *instead(const char *path) {
    const char *run = getenv("HALOG_RUN");
    return run && path && strcmp(path, "/proc/sys/kernel/random/boot_id") == 0 ? run : path;
}

ssize_t readlink(const char *path, char *into, size_t size) {
    static ssize_t (*real)(const char *, char *, size_t);
    if (!real) real = (ssize_t (*)(const char *, char *, size_t))dlsym(RTLD_NEXT, "readlink");
    if (getenv("HALOG_RUN") && path && strcmp(path, "/proc/self/ns/net") == 0) {
        errno = ENOENT;
        return -1;
    }
    return real(path, into, size);
}

#define MODE(last)                                    \
    mode_t mode = 0;                                  \
    if (flags & (O_CREAT | __O_TMPFILE)) {            \
        va_list more;                                 \
        va_start(more, last);                         \
        mode = (mode_t)va_arg(more, unsigned int);    \
        va_end(more);                                 \
    }

#define OPEN(name)                                                                          \
    int name(const char *path, int flags, ...) {                                            \
        static int (*real)(const char *, int, ...);                                         \
        if (!real) real = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name);         \
        MODE(flags)                                                                         \
        return real(instead(path), flags, mode);                                            \
    }

#define OPENAT(name)                                                                        \
    int name(int at, const char *path, int flags, ...) {                                    \
        static int (*real)(int, const char *, int, ...);                                    \
        if (!real) real = (int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, #name);    \
        MODE(flags)                                                                         \
        return real(at, instead(path), flags, mode);                                        \
    }

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)
