/* libgodwit_preload.so: functions of the C library, for LD_PRELOAD. Names below /godwit/ go to libgodwit; all other
 * names go to the next library.
 *
 * A file of another machine is a descriptor of a file of this one, so reading and writing it are the kernel's. A table has
 * the inode number that each such descriptor shows. */
#define _GNU_SOURCE
#include <godwit.h>

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

/* Aliases below stand for both widths. */
_Static_assert(sizeof(struct stat) == sizeof(struct stat64) && sizeof(off_t) == 8, "offsets have 64 bits");

#define NEXT(name)                                                                                                     \
    ({                                                                                                                 \
        static __typeof__(&name) next_;                                                                                \
        if (!next_)                                                                                                    \
            next_ = (__typeof__(&name))dlsym(RTLD_NEXT, #name);                                                        \
        next_;                                                                                                         \
    })

#define DEVICE makedev(0, 0x67)
#define DESCRIPTORS 65536
#define HIGH 100
static const struct timespec pause_between = {0, 200 * 1000 * 1000};

/* By descriptor, the inode number of a file of another machine; 0: it is of this machine. */
static _Atomic uint64_t inodes[DESCRIPTORS];
/* The process whose descriptors those are; a child of vfork(2) is another. */
static pid_t home;

/* Set when the library has its descriptors. */
static _Atomic int has_begun;

static void born(void)
{
    home = getpid();
    has_begun = 0;
}

__attribute__((constructor)) static void begin(void)
{
    born();
    pthread_atfork(NULL, NULL, born);
}

/* Has the library take descriptors that shells do not use by their numbers: the low ones are in use meanwhile. */
static void begin_high(void)
{
    int taken[HIGH], count = 0, error = errno, fd, null;
    if (getpid() != home || atomic_exchange(&has_begun, 1))
        return;
    null = NEXT(open)("/dev/null", O_RDONLY | O_CLOEXEC);
    while (null >= 0 && count < HIGH && (fd = NEXT(fcntl)(null, F_DUPFD_CLOEXEC, 0)) >= 0) {
        taken[count++] = fd;
        if (fd >= HIGH)
            break;
    }
    godwit_begin(); /* if it fails, the next call says why */
    while (count)
        NEXT(close)(taken[--count]);
    if (null >= 0)
        NEXT(close)(null);
    errno = error;
}

/* Callers have attributes that say that a name is not NULL; programs may pass NULL all the same. */
__attribute__((noinline, noipa)) static int is_ours(const char *path)
{
    if (!path || strncmp(path, "/godwit", 7) || (path[7] != '/' && path[7]))
        return 0;
    begin_high();
    return 1;
}

__attribute__((noinline, noipa)) static int is_empty(const char *path)
{
    return !path || !*path;
}

/* Tells whether a name is of the directory that has the servers, or of a server. */
static int is_top(const char *path)
{
    const char *name = path + 7;
    name += strspn(name, "/");
    name += strcspn(name, "/");
    return !name[strspn(name, "/")];
}

static uint64_t inode_of(const char *path)
{
    uint64_t hash = 14695981039346656037u;
    for (; *path; path++)
        if (*path != '/' || path[1] != '/')
            hash = (hash ^ (unsigned char)*path) * 1099511628211u;
    return hash ? hash : 1;
}

static uint64_t inode_at(int fd)
{
    return fd >= 0 && fd < DESCRIPTORS ? atomic_load(&inodes[fd]) : 0;
}

static void set_inode(int fd, uint64_t inode)
{
    if (fd >= 0 && fd < DESCRIPTORS)
        atomic_store(&inodes[fd], inode);
}

static int refuse(int error)
{
    errno = error;
    return -1;
}

/* Says once in words why a call fails, where the number says little. */
static void report(void)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    int error = errno;
    if (error != ENOENT && error != EEXIST && error != EISDIR && error != ENOTDIR && error != EOPNOTSUPP &&
        !atomic_flag_test_and_set(&told))
        dprintf(2, "godwit: %s%s%s\n", godwit_strerror(), *godwit_hint() ? "; " : "", godwit_hint());
    errno = error;
}

/* Tells whether a call that failed is to be tried again: a server is away, and readers wait for GODWIT_WAIT_MS. */
static int again(struct timespec *since)
{
    const char *text = getenv("GODWIT_WAIT_MS");
    struct timespec now;
    int error = errno;
    if (!text || !godwit_error_passes())
        return 0;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!since->tv_sec)
        *since = now;
    int64_t passed = (now.tv_sec - since->tv_sec) * 1000 + (now.tv_nsec - since->tv_nsec) / 1000000;
    int goes_on = passed < strtoll(text, NULL, 10);
    if (goes_on && nanosleep(&pause_between, NULL))
        return 0; /* a signal: EINTR */
    errno = error;
    return goes_on;
}

/* ---- Open and close -------------------------------------------------------------------------------------- */

static int open_ours(const char *path, int flags, mode_t mode)
{
    int writes = (flags & O_ACCMODE) != O_RDONLY, appends, fd;
    struct timespec since = {0, 0};
    if (getpid() != home)
        return refuse(EOPNOTSUPP); /* a child of vfork(2) has its parent's memory */
    appends = writes && (flags & O_APPEND); /* the kernel says where the end is */
    flags &= ~(O_APPEND | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW | O_NOATIME);
    do
        fd = gass_open(path, flags, mode);
    while (fd < 0 && !writes && again(&since));
    if (fd < 0 && (flags & O_TRUNC) && !(flags & O_CREAT) && godwit_error_passes())
        fd = gass_open(path, flags | O_CREAT, 0666); /* stat said that it is there */
    if (fd < 0) {
        report();
        return -1;
    }
    if (fd >= DESCRIPTORS) {
        gass_close(fd);
        return refuse(EMFILE);
    }
    if (appends)
        NEXT(fcntl)(fd, F_SETFL, NEXT(fcntl)(fd, F_GETFL) | O_APPEND);
    set_inode(fd, inode_of(path));
    return fd;
}

/* Closes without waiting for a disk or a server, unless GODWIT_CLOSE says otherwise. */
static int close_ours(int fd)
{
    set_inode(fd, 0);
    if (getpid() != home)
        return NEXT(close)(fd);
    int closed = getenv("GODWIT_CLOSE") ? gass_close(fd) : godwit_close(fd, GODWIT_NOWAIT);
    if (closed)
        report();
    return closed;
}

#define MODE_OF(flags)                                                                                                 \
    ({                                                                                                                 \
        mode_t mode_ = 0;                                                                                              \
        if ((flags) & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))) {                                                        \
            va_list rest_;                                                                                             \
            va_start(rest_, flags);                                                                                    \
            mode_ = va_arg(rest_, mode_t);                                                                             \
            va_end(rest_);                                                                                             \
        }                                                                                                              \
        mode_;                                                                                                         \
    })

#define OPEN(name)                                                                                                     \
    int name(const char *path, int flags, ...)                                                                         \
    {                                                                                                                  \
        mode_t mode = MODE_OF(flags);                                                                                  \
        return is_ours(path) ? open_ours(path, flags, mode) : NEXT(name)(path, flags, mode);                           \
    }
#define OPENAT(name)                                                                                                   \
    int name(int at, const char *path, int flags, ...)                                                                 \
    {                                                                                                                  \
        mode_t mode = MODE_OF(flags);                                                                                  \
        return is_ours(path) ? open_ours(path, flags, mode) : NEXT(name)(at, path, flags, mode);                       \
    }
#define OPEN_2(name)                                                                                                   \
    int name(const char *path, int flags)                                                                              \
    {                                                                                                                  \
        return is_ours(path) ? open_ours(path, flags, 0) : NEXT(name)(path, flags);                                    \
    }
#define OPENAT_2(name)                                                                                                 \
    int name(int at, const char *path, int flags)                                                                      \
    {                                                                                                                  \
        return is_ours(path) ? open_ours(path, flags, 0) : NEXT(name)(at, path, flags);                                \
    }
#define CREAT(name)                                                                                                    \
    int name(const char *path, mode_t mode)                                                                            \
    {                                                                                                                  \
        return is_ours(path) ? open_ours(path, O_WRONLY | O_CREAT | O_TRUNC, mode) : NEXT(name)(path, mode);           \
    }

/* What headers do not declare. */
int __open(const char *, int, ...);
int __open64(const char *, int, ...);
int __open_2(const char *, int);
int __open64_2(const char *, int);
int __openat_2(int, const char *, int);
int __openat64_2(int, const char *, int);
int __close(int);
int __dup2(int, int);
int __fcntl(int, int, ...);
FILE *_IO_fopen(const char *, const char *);
int _IO_fclose(FILE *);
int __xstat(int, const char *, struct stat *);
int __lxstat(int, const char *, struct stat *);
int __fxstat(int, int, struct stat *);
int __fxstatat(int, int, const char *, struct stat *, int);
int __xstat64(int, const char *, struct stat64 *);
int __lxstat64(int, const char *, struct stat64 *);
int __fxstat64(int, int, struct stat64 *);
int __fxstatat64(int, int, const char *, struct stat64 *, int);

OPEN(open)
OPEN(open64)
OPEN(__open)
OPEN(__open64)
OPEN_2(__open_2)
OPEN_2(__open64_2)
OPENAT(openat)
OPENAT(openat64)
OPENAT_2(__openat_2)
OPENAT_2(__openat64_2)
CREAT(creat)
CREAT(creat64)

int close(int fd)
{
    return inode_at(fd) ? close_ours(fd) : NEXT(close)(fd);
}

int __close(int fd)
{
    return close(fd);
}

/* ---- Copies of descriptors -------------------------------------------------------------------------------- */

static int copied(int from, int to)
{
    if (to >= 0 && to != from && getpid() == home)
        set_inode(to, inode_at(from));
    return to;
}

/* A descriptor that another takes the place of is closed. */
static int replaced(int from, int to)
{
    if (from != to && inode_at(to) && getpid() == home && NEXT(fcntl)(from, F_GETFD) >= 0)
        close_ours(to);
    return to;
}

int dup(int fd)
{
    return copied(fd, NEXT(dup)(fd));
}

int dup2(int fd, int to)
{
    return copied(fd, NEXT(dup2)(fd, replaced(fd, to)));
}

int __dup2(int fd, int to)
{
    return dup2(fd, to);
}

int dup3(int fd, int to, int flags)
{
    return copied(fd, NEXT(dup3)(fd, replaced(fd, to), flags));
}

#define FCNTL(name)                                                                                                    \
    int name(int fd, int what, ...)                                                                                    \
    {                                                                                                                  \
        va_list rest;                                                                                                  \
        va_start(rest, what);                                                                                          \
        void *value = va_arg(rest, void *);                                                                            \
        va_end(rest);                                                                                                  \
        int told = NEXT(name)(fd, what, value);                                                                        \
        return what == F_DUPFD || what == F_DUPFD_CLOEXEC ? copied(fd, told) : told;                                   \
    }
FCNTL(fcntl)
FCNTL(fcntl64)
FCNTL(__fcntl)

/* ---- Streams ---------------------------------------------------------------------------------------------- */

/* Returns the flags that a mode of fopen(3) stands for, or -1. */
static int flags_of(const char *mode)
{
    int both = strchr(mode, '+') != NULL, flags;
    switch (*mode) {
    case 'r':
        flags = both ? O_RDWR : O_RDONLY;
        break;
    case 'w':
        flags = (both ? O_RDWR : O_WRONLY) | O_CREAT | O_TRUNC;
        break;
    case 'a':
        flags = (both ? O_RDWR : O_WRONLY) | O_CREAT | O_APPEND;
        break;
    default:
        return refuse(EINVAL);
    }
    return flags | (strchr(mode, 'x') ? O_EXCL : 0) | (strchr(mode, 'e') ? O_CLOEXEC : 0);
}

static FILE *fopen_ours(const char *path, const char *mode)
{
    int flags = flags_of(mode), fd = flags < 0 ? -1 : open_ours(path, flags, 0666);
    FILE *stream = fd < 0 ? NULL : fdopen(fd, mode);
    if (fd >= 0 && !stream)
        close_ours(fd);
    return stream;
}

/* The stream keeps its descriptor's number where the C library keeps it. */
static FILE *freopen_ours(const char *path, const char *mode, FILE *stream)
{
    int flags = flags_of(mode), fd = flags < 0 ? -1 : open_ours(path, flags, 0666);
    if (fd < 0) {
        int error = errno;
        fclose(stream);
        errno = error;
        return NULL;
    }
    set_inode(fileno(stream), 0); /* given back when its number is closed */
    stream = NEXT(freopen)("/dev/null", *mode == 'r' ? "r+" : mode, stream);
    if (stream)
        dup2(fd, fileno(stream));
    close(fd);
    return stream;
}

#define FOPEN(name)                                                                                                    \
    FILE *name(const char *path, const char *mode)                                                                     \
    {                                                                                                                  \
        return is_ours(path) ? fopen_ours(path, mode) : NEXT(name)(path, mode);                                        \
    }
#define FREOPEN(name)                                                                                                  \
    FILE *name(const char *path, const char *mode, FILE *stream)                                                       \
    {                                                                                                                  \
        if (is_ours(path))                                                                                             \
            return freopen_ours(path, mode, stream);                                                                   \
        set_inode(fileno(stream), 0);                                                                                  \
        return NEXT(name)(path, mode, stream);                                                                         \
    }
FOPEN(fopen)
FOPEN(fopen64)
FOPEN(_IO_fopen)
FREOPEN(freopen)
FREOPEN(freopen64)

int fclose(FILE *stream)
{
    int fd = stream ? fileno(stream) : -1;
    if (!inode_at(fd) || getpid() != home)
        return NEXT(fclose)(stream);
    set_inode(fd, 0);
    int closed = getenv("GODWIT_CLOSE") ? gass_fclose(stream) : godwit_fclose(stream, GODWIT_NOWAIT);
    if (closed)
        report();
    return closed;
}

int _IO_fclose(FILE *stream)
{
    return fclose(stream);
}

/* ---- What is known of a name ------------------------------------------------------------------------------- */

static int stat_ours(const char *path, struct stat *stat)
{
    struct godwit_stat told = {.mtime_ns = 0, .mode = -1, .is_directory = is_top(path)};
    if (!told.is_directory && godwit_stat(path, &told)) {
        if (getpid() != home || !godwit_error_passes()) {
            report();
            return -1;
        }
        /* The server is away, and nothing is known of it: it can be written anew. */
        told = (struct godwit_stat){.mtime_ns = 0, .mode = -1};
    }
    memset(stat, 0, sizeof *stat);
    stat->st_dev = DEVICE;
    stat->st_ino = inode_of(path);
    stat->st_nlink = 1;
    stat->st_uid = geteuid();
    stat->st_gid = getegid();
    stat->st_mode = told.is_directory ? S_IFDIR | (told.mode < 0 ? 0755 : told.mode & 07777)
                                      : S_IFREG | (told.mode < 0 ? 0644 : told.mode & 07777);
    stat->st_size = told.is_directory ? 0 : (off_t)told.size;
    stat->st_blksize = 65536;
    stat->st_blocks = (stat->st_size + 511) / 512;
    stat->st_mtim.tv_sec = told.mtime_ns < 0 ? 0 : told.mtime_ns / 1000000000;
    stat->st_mtim.tv_nsec = told.mtime_ns < 0 ? 0 : told.mtime_ns % 1000000000;
    stat->st_atim = stat->st_ctim = stat->st_mtim;
    return 0;
}

/* Has a descriptor show the inode that its name shows. */
static void show(int fd, dev_t *device, ino_t *inode)
{
    uint64_t ours = inode_at(fd);
    if (ours) {
        *device = DEVICE;
        *inode = ours;
    }
}

#define STAT(name, type)                                                                                               \
    int name(const char *path, struct type *out)                                                                       \
    {                                                                                                                  \
        return is_ours(path) ? stat_ours(path, (struct stat *)out) : NEXT(name)(path, out);                            \
    }
#define FSTAT(name, type)                                                                                              \
    int name(int fd, struct type *out)                                                                                 \
    {                                                                                                                  \
        int told = NEXT(name)(fd, out) ;                                                                               \
        if (!told)                                                                                                     \
            show(fd, &out->st_dev, &out->st_ino);                                                                      \
        return told;                                                                                                   \
    }
#define FSTATAT(name, type)                                                                                            \
    int name(int at, const char *path, struct type *out, int flags)                                                    \
    {                                                                                                                  \
        if (is_ours(path))                                                                                             \
            return stat_ours(path, (struct stat *)out);                                                                \
        int told = NEXT(name)(at, path, out, flags);                                                                   \
        if (!told && (flags & AT_EMPTY_PATH) && is_empty(path))                                                        \
            show(at, &out->st_dev, &out->st_ino);                                                                      \
        return told;                                                                                                   \
    }
STAT(stat, stat)
STAT(stat64, stat64)
STAT(lstat, stat)
STAT(lstat64, stat64)
FSTAT(fstat, stat)
FSTAT(fstat64, stat64)
FSTATAT(fstatat, stat)
FSTATAT(fstatat64, stat64)

/* Forms of programs that were built with a glibc before 2.33. */
#define OLD(name, new, type)                                                                                           \
    int name(int version, const char *path, struct type *out)                                                          \
    {                                                                                                                  \
        (void)version;                                                                                                 \
        return new (path, out);                                                                                        \
    }
OLD(__xstat, stat, stat)
OLD(__xstat64, stat64, stat64)
OLD(__lxstat, lstat, stat)
OLD(__lxstat64, lstat64, stat64)

int __fxstat(int version, int fd, struct stat *stat)
{
    (void)version;
    return fstat(fd, stat);
}

int __fxstat64(int version, int fd, struct stat64 *stat)
{
    (void)version;
    return fstat64(fd, stat);
}

int __fxstatat(int version, int at, const char *path, struct stat *stat, int flags)
{
    (void)version;
    return fstatat(at, path, stat, flags);
}

int __fxstatat64(int version, int at, const char *path, struct stat64 *stat, int flags)
{
    (void)version;
    return fstatat64(at, path, stat, flags);
}

int statx(int at, const char *path, int flags, unsigned mask, struct statx *out)
{
    struct stat stat;
    if (!is_ours(path)) {
        int told = NEXT(statx)(at, path, flags, mask, out);
        uint64_t inode = !told && (flags & AT_EMPTY_PATH) && is_empty(path) ? inode_at(at) : 0;
        if (inode) {
            out->stx_ino = inode;
            out->stx_dev_major = major(DEVICE);
            out->stx_dev_minor = minor(DEVICE);
        }
        return told;
    }
    if (stat_ours(path, &stat))
        return -1;
    memset(out, 0, sizeof *out);
    out->stx_mask = STATX_BASIC_STATS;
    out->stx_blksize = stat.st_blksize;
    out->stx_nlink = stat.st_nlink;
    out->stx_uid = stat.st_uid;
    out->stx_gid = stat.st_gid;
    out->stx_mode = stat.st_mode;
    out->stx_ino = stat.st_ino;
    out->stx_size = stat.st_size;
    out->stx_blocks = stat.st_blocks;
    out->stx_mtime.tv_sec = stat.st_mtim.tv_sec;
    out->stx_mtime.tv_nsec = stat.st_mtim.tv_nsec;
    out->stx_atime = out->stx_ctime = out->stx_mtime;
    out->stx_dev_major = major(DEVICE);
    out->stx_dev_minor = minor(DEVICE);
    return 0;
}

static int access_ours(const char *path, int how)
{
    struct stat stat;
    if (stat_ours(path, &stat))
        return -1;
    return (how & X_OK) && !(stat.st_mode & 0111) ? refuse(EACCES) : 0;
}

#define ACCESS(name)                                                                                                   \
    int name(const char *path, int how)                                                                                \
    {                                                                                                                  \
        return is_ours(path) ? access_ours(path, how) : NEXT(name)(path, how);                                         \
    }
ACCESS(access)
ACCESS(eaccess)
ACCESS(euidaccess)

int faccessat(int at, const char *path, int how, int flags)
{
    return is_ours(path) ? access_ours(path, how) : NEXT(faccessat)(at, path, how, flags);
}

/* ---- Deeds on names ---------------------------------------------------------------------------------------- */

static int told(int done)
{
    if (done)
        report();
    return done;
}

static int remove_ours(const char *path, int wants_directory, int wants_file)
{
    struct stat stat;
    if (is_top(path))
        return refuse(EBUSY);
    if (stat_ours(path, &stat))
        return -1;
    /* Nothing is known of the kind of a name whose server is away. */
    if (wants_file && S_ISDIR(stat.st_mode))
        return refuse(EISDIR);
    if (wants_directory && !S_ISDIR(stat.st_mode))
        return refuse(ENOTDIR);
    return told(godwit_unlink(path));
}

int unlink(const char *path)
{
    return is_ours(path) ? remove_ours(path, 0, 1) : NEXT(unlink)(path);
}

int rmdir(const char *path)
{
    return is_ours(path) ? remove_ours(path, 1, 0) : NEXT(rmdir)(path);
}

int remove(const char *path)
{
    return is_ours(path) ? remove_ours(path, 0, 0) : NEXT(remove)(path);
}

int unlinkat(int at, const char *path, int flags)
{
    int is_directory = (flags & AT_REMOVEDIR) != 0;
    return is_ours(path) ? remove_ours(path, is_directory, !is_directory) : NEXT(unlinkat)(at, path, flags);
}

static int rename_ours(const char *from, const char *to, unsigned flags)
{
    struct stat stat;
    if (!is_ours(from) || !is_ours(to))
        return refuse(EXDEV);
    if (flags & ~RENAME_NOREPLACE)
        return refuse(EINVAL);
    if (is_top(from) || is_top(to))
        return refuse(EBUSY);
    if ((flags & RENAME_NOREPLACE) && !godwit_stat(to, &(struct godwit_stat){.size = 0}))
        return refuse(EEXIST);
    if (stat_ours(from, &stat))
        return -1;
    return told(godwit_rename(from, to));
}

int rename(const char *from, const char *to)
{
    return is_ours(from) || is_ours(to) ? rename_ours(from, to, 0) : NEXT(rename)(from, to);
}

int renameat(int at, const char *from, int to_at, const char *to)
{
    return is_ours(from) || is_ours(to) ? rename_ours(from, to, 0) : NEXT(renameat)(at, from, to_at, to);
}

int renameat2(int at, const char *from, int to_at, const char *to, unsigned flags)
{
    return is_ours(from) || is_ours(to) ? rename_ours(from, to, flags) : NEXT(renameat2)(at, from, to_at, to, flags);
}

static int mkdir_ours(const char *path)
{
    return is_top(path) ? refuse(EEXIST) : told(godwit_mkdir(path));
}

int mkdir(const char *path, mode_t mode)
{
    return is_ours(path) ? mkdir_ours(path) : NEXT(mkdir)(path, mode);
}

int mkdirat(int at, const char *path, mode_t mode)
{
    return is_ours(path) ? mkdir_ours(path) : NEXT(mkdirat)(at, path, mode);
}

#define TRUNCATE(name)                                                                                                 \
    int name(const char *path, off_t size)                                                                             \
    {                                                                                                                  \
        if (is_ours(path))                                                                                             \
            return size < 0 ? refuse(EINVAL) : told(godwit_truncate(path, size));                                      \
        return NEXT(name)(path, size);                                                                                 \
    }
TRUNCATE(truncate)
TRUNCATE(truncate64)

DIR *opendir(const char *path)
{
    if (!is_ours(path))
        return NEXT(opendir)(path);
    errno = EOPNOTSUPP;
    return NULL;
}
