/*
 * Preloaded into a process, writes down everything that it does to the files under one folder: each write with its
 * bytes, each change of a folder, and when a flush began and ended. What the disk holds after a power cut at any
 * moment follows from that; see disk.rs.
 *
 *   POOLWRIGHT_RECORD_ROOT   the folder, an absolute path
 *   POOLWRIGHT_RECORD_LOG    the file that the records are appended to
 *
 * Each call is done and written down under one lock, so that the records stand in the order of the calls; only a
 * flush goes on beside others. A call that the records can't tell ends the process: a log with a gap proves nothing.
 * SQLite's shared memory (*-shm) is left out: it is made anew after a stop.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { CREATE = 1, WRITE, TRUNCATE, SYNC_BEGINS, SYNC_ENDS, RENAME, UNLINK, LINK, MKDIR };

struct record {
    uint32_t kind, length;
    uint64_t inode, number; /* number: an offset, a length, or which flush */
};

enum { DESCRIPTORS = 4096 };

static char root[PATH_MAX];
static size_t root_length;
static int log_file = -1;
static uint64_t flushes;
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;
static uint64_t inodes[DESCRIPTORS]; /* of what is open under the root; else 0 */
static char appends[DESCRIPTORS];

static void die(const char *why, const char *what) {
    dprintf(2, "recorder: %s: %s\n", why, what);
    _exit(97);
}

static void tell(uint32_t kind, uint64_t inode, uint64_t number, const struct iovec *parts, int count) {
    struct iovec all[8];
    struct record record = {kind, 0, inode, number};
    size_t whole = sizeof record;
    all[0] = (struct iovec){&record, sizeof record};
    for (int at = 0; at < count; at++) {
        all[at + 1] = parts[at];
        record.length += parts[at].iov_len;
        whole += parts[at].iov_len;
    }
    if (syscall(SYS_writev, log_file, all, count + 1) != (ssize_t)whole) die("the log can't be written", strerror(errno));
}

static void tell_text(uint32_t kind, uint64_t inode, const char *first, const char *second) {
    struct iovec parts[2] = {{(void *)first, strlen(first)}, {(void *)second, second ? strlen(second) : 0}};
    if (second) parts[0].iov_len++; /* with its end, which parts the two */
    tell(kind, inode, 0, parts, second ? 2 : 1);
}

__attribute__((constructor)) static void begin(void) {
    const char *where = getenv("POOLWRIGHT_RECORD_ROOT"), *file = getenv("POOLWRIGHT_RECORD_LOG");
    struct stat seen;
    if (!where || !file) return;
    log_file = syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (log_file < 0 || !realpath(where, root) || stat(root, &seen)) die("no log, or no folder", where);
    root_length = strlen(root);
    tell_text(MKDIR, seen.st_ino, "", NULL);
}

/* The path under the root, without a slash before it; NULL where it is elsewhere. */
static const char *ours(int folder, const char *path) {
    if (log_file < 0 || strncmp(path, root, root_length)) {
        int inside = folder >= 0 && folder < DESCRIPTORS && inodes[folder];
        if (log_file >= 0 && inside && path[0] != '/') die("a path that begins at an open folder", path);
        return NULL;
    }
    const char *rest = path + root_length;
    if (*rest && *rest != '/') return NULL;
    while (*rest == '/') rest++;
    size_t length = strlen(rest);
    return length > 4 && !strcmp(rest + length - 4, "-shm") ? NULL : rest;
}

static uint64_t watched(int file) {
    return file >= 0 && file < DESCRIPTORS ? inodes[file] : 0;
}

static int opened(int folder, const char *path, int flags, mode_t mode) {
    const char *name = ours(folder, path);
    if (!name) return syscall(SYS_openat, folder, path, flags, mode);
    pthread_mutex_lock(&order);
    struct stat seen;
    int was_there = stat(path, &seen) == 0;
    off_t length = was_there ? seen.st_size : 0;
    int file = syscall(SYS_openat, folder, path, flags, mode), error = errno;
    if (file >= 0) {
        if (file >= DESCRIPTORS || fstat(file, &seen)) die("too many open files", path);
        inodes[file] = seen.st_ino;
        appends[file] = (flags & O_APPEND) != 0;
        if (!was_there) tell_text(CREATE, seen.st_ino, name, NULL);
        else if ((flags & O_TRUNC) && length) tell(TRUNCATE, seen.st_ino, 0, NULL, 0);
    }
    pthread_mutex_unlock(&order);
    errno = error;
    return file;
}

static mode_t mode_of(int flags, va_list more) {
    return flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, mode_t) : 0;
}

#define OPEN(NAME)                                                                                                     \
    int NAME(const char *path, int flags, ...) {                                                                       \
        va_list more;                                                                                                  \
        va_start(more, flags);                                                                                         \
        mode_t mode = mode_of(flags, more);                                                                            \
        va_end(more);                                                                                                  \
        return opened(AT_FDCWD, path, flags, mode);                                                                    \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(NAME)                                                                                                   \
    int NAME(int folder, const char *path, int flags, ...) {                                                           \
        va_list more;                                                                                                  \
        va_start(more, flags);                                                                                         \
        mode_t mode = mode_of(flags, more);                                                                            \
        va_end(more);                                                                                                  \
        return opened(folder, path, flags, mode);                                                                      \
    }
OPENAT(openat)
OPENAT(openat64)

int close(int file) {
    if (!watched(file)) return syscall(SYS_close, file);
    pthread_mutex_lock(&order);
    inodes[file] = 0;
    int done = syscall(SYS_close, file), error = errno;
    pthread_mutex_unlock(&order);
    errno = error;
    return done;
}

static void wrote(int file, const struct iovec *parts, int count, ssize_t done, off_t at) {
    struct iovec told[4];
    int used = 0;
    if (count > 4) die("a write of many parts", "writev");
    for (; used < count && done > 0; used++) {
        told[used] = parts[used];
        if ((size_t)done < told[used].iov_len) told[used].iov_len = done;
        done -= told[used].iov_len;
    }
    tell(WRITE, inodes[file], at, told, used);
}

/* At the file's own place, or at its end. */
static ssize_t written(int file, const struct iovec *parts, int count) {
    if (!watched(file)) return syscall(SYS_writev, file, parts, count);
    pthread_mutex_lock(&order);
    struct stat seen;
    if (fstat(file, &seen)) die("fstat", strerror(errno));
    off_t at = appends[file] ? seen.st_size : lseek(file, 0, SEEK_CUR);
    ssize_t done = syscall(SYS_writev, file, parts, count);
    int error = errno;
    if (done > 0) wrote(file, parts, count, done, at);
    pthread_mutex_unlock(&order);
    errno = error;
    return done;
}

ssize_t write(int file, const void *bytes, size_t length) {
    struct iovec part = {(void *)bytes, length};
    return watched(file) ? written(file, &part, 1) : syscall(SYS_write, file, bytes, length);
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    return written(file, parts, count);
}

static ssize_t written_at(int file, const void *bytes, size_t length, off_t at) {
    if (!watched(file)) return syscall(SYS_pwrite64, file, bytes, length, at);
    pthread_mutex_lock(&order);
    struct iovec part = {(void *)bytes, length};
    ssize_t done = syscall(SYS_pwrite64, file, bytes, length, at);
    int error = errno;
    if (done > 0) wrote(file, &part, 1, done, at);
    pthread_mutex_unlock(&order);
    errno = error;
    return done;
}

ssize_t pwrite(int file, const void *bytes, size_t length, off_t at) { return written_at(file, bytes, length, at); }
ssize_t pwrite64(int file, const void *bytes, size_t length, off64_t at) { return written_at(file, bytes, length, at); }

static int cut(int file, off_t length) {
    if (!watched(file)) return syscall(SYS_ftruncate, file, length);
    pthread_mutex_lock(&order);
    int done = syscall(SYS_ftruncate, file, length), error = errno;
    if (!done) tell(TRUNCATE, inodes[file], length, NULL, 0);
    pthread_mutex_unlock(&order);
    errno = error;
    return done;
}

int ftruncate(int file, off_t length) { return cut(file, length); }
int ftruncate64(int file, off64_t length) { return cut(file, length); }

/* What was written before it began is on the disk once it has ended. */
static int flushed(long call, int file) {
    uint64_t inode = watched(file);
    if (!inode) return syscall(call, file);
    pthread_mutex_lock(&order);
    uint64_t number = ++flushes;
    tell(SYNC_BEGINS, inode, number, NULL, 0);
    pthread_mutex_unlock(&order);
    int done = syscall(call, file), error = errno;
    pthread_mutex_lock(&order);
    if (!done) tell(SYNC_ENDS, inode, number, NULL, 0);
    pthread_mutex_unlock(&order);
    errno = error;
    return done;
}

int fsync(int file) { return flushed(SYS_fsync, file); }
int fdatasync(int file) { return flushed(SYS_fdatasync, file); }

static int renamed(const char *from, const char *to) {
    const char *first = ours(AT_FDCWD, from), *second = ours(AT_FDCWD, to);
    if (!first != !second) die("a file that moves in or out", from);
    if (!first) return syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
    pthread_mutex_lock(&order);
    int done = syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0), error = errno;
    if (!done) tell_text(RENAME, 0, first, second);
    pthread_mutex_unlock(&order);
    errno = error;
    return done;
}

int rename(const char *from, const char *to) { return renamed(from, to); }

int unlink(const char *path) {
    const char *name = ours(AT_FDCWD, path);
    if (!name) return syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    pthread_mutex_lock(&order);
    int done = syscall(SYS_unlinkat, AT_FDCWD, path, 0), error = errno;
    if (!done) tell_text(UNLINK, 0, name, NULL);
    pthread_mutex_unlock(&order);
    errno = error;
    return done;
}

int link(const char *from, const char *to) {
    const char *first = ours(AT_FDCWD, from), *second = ours(AT_FDCWD, to);
    if (!first != !second) die("a file with names in and out", from);
    if (!first) return syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0);
    pthread_mutex_lock(&order);
    int done = syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0), error = errno;
    if (!done) tell_text(LINK, 0, first, second);
    pthread_mutex_unlock(&order);
    errno = error;
    return done;
}

int mkdir(const char *path, mode_t mode) {
    const char *name = ours(AT_FDCWD, path);
    if (!name) return syscall(SYS_mkdirat, AT_FDCWD, path, mode);
    pthread_mutex_lock(&order);
    struct stat seen;
    int done = syscall(SYS_mkdirat, AT_FDCWD, path, mode), error = errno;
    if (!done) {
        if (stat(path, &seen)) die("stat", path);
        tell_text(MKDIR, seen.st_ino, name, NULL);
    }
    pthread_mutex_unlock(&order);
    errno = error;
    return done;
}

/* What the records can't tell: nothing here does it, and a later version that did would be noticed. */
static int refuse(int file, const char *call) {
    if (watched(file)) die("a call that is not written down", call);
    return 0;
}

int fallocate(int file, int mode, off_t at, off_t length) {
    refuse(file, "fallocate");
    return syscall(SYS_fallocate, file, mode, at, length);
}
int fallocate64(int file, int mode, off64_t at, off64_t length) {
    refuse(file, "fallocate");
    return syscall(SYS_fallocate, file, mode, at, length);
}
ssize_t sendfile(int to, int from, off_t *at, size_t length) {
    refuse(to, "sendfile");
    return syscall(SYS_sendfile, to, from, at, length);
}
ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t length, unsigned flags) {
    refuse(to, "copy_file_range");
    return syscall(SYS_copy_file_range, from, from_at, to, to_at, length, flags);
}
