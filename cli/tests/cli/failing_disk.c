/*
 * Preloaded into a process, lets its disk fail while the file that POOLWRIGHT_DISK_FAILS names is there. What that file
 * says decides how, for the files of a database:
 *
 *   flush    no flush is carried out, and each ends with EIO, as on a disk that has lost what was written;
 *   EIO, EROFS, ENOSPC    nothing is written, and each write ends with that error: a disk that fails, a file system
 *            that was made read-only because of an error, a full one.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is_a_database(int file) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strstr(path, "poolwright.db") != NULL;
}

/* What the disk does just now: an empty text where it works. */
static void mood(char *text, size_t size) {
    const char *sign = getenv("POOLWRIGHT_DISK_FAILS");
    int file = sign ? open(sign, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t length = file < 0 ? 0 : read(file, text, size - 1);
    if (file >= 0) close(file);
    text[length > 0 ? length : 0] = 0;
}

static int flushes_fail(void) {
    char text[16];
    mood(text, sizeof text);
    return strcmp(text, "flush") == 0;
}

static int write_error(void) {
    char text[16];
    mood(text, sizeof text);
    if (strcmp(text, "EIO") == 0) return EIO;
    if (strcmp(text, "EROFS") == 0) return EROFS;
    if (strcmp(text, "ENOSPC") == 0) return ENOSPC;
    return 0;
}

static int flush(const char *name, int file) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    if (is_a_database(file) && flushes_fail()) {
        errno = EIO;
        return -1;
    }
    return real(file);
}

int fsync(int file) { return flush("fsync", file); }
int fdatasync(int file) { return flush("fdatasync", file); }

typedef ssize_t (*writes)(int, const void *, size_t, off64_t);

static ssize_t put(const char *name, int file, const void *from, size_t size, off64_t at) {
    int error = is_a_database(file) ? write_error() : 0;
    if (error) {
        errno = error;
        return -1;
    }
    return ((writes)dlsym(RTLD_NEXT, name))(file, from, size, at);
}

ssize_t pwrite(int file, const void *from, size_t size, off_t at) { return put("pwrite", file, from, size, at); }
ssize_t pwrite64(int file, const void *from, size_t size, off64_t at) { return put("pwrite64", file, from, size, at); }
