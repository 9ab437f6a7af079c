/* posix.c: what the library does to the process beside MPI. */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Takes this library from LD_PRELOAD: programs that this one starts have nothing to do with it. */
__attribute__((constructor)) static void leave_children_alone(void)
{
    const char *all = getenv("LD_PRELOAD");
    char *kept = all ? calloc(1, strlen(all) + 1) : NULL, *copy = all ? strdup(all) : NULL, *rest = copy;
    for (char *word; kept && rest && (word = strsep(&rest, ": "));)
        if (*word && !strstr(word, "libgodwit_mpi_"))
            strcat(*kept ? strcat(kept, ":") : kept, word);
    if (kept && *kept)
        setenv("LD_PRELOAD", kept, 1);
    else if (kept)
        unsetenv("LD_PRELOAD");
    free(kept);
    free(copy);
}

/* ---- PnetCDF ---------------------------------------------------------------------------------------------- */

/* PnetCDF, and programs that use it, take the scheme from a name, and ask for the rest, //HOST/PATH, by functions of
 * POSIX. Such a rest of a name that PnetCDF has had is what was meant; a name without a scheme is while PnetCDF runs. */
static __thread const char *running;
static struct name {
    struct name *next;
    char *text;
} *_Atomic names;
enum { MAGIC_BYTES = 4096 }; /* PnetCDF reads the begin of a file, to tell formats from each other */

static int is_rest_of(const char *path, const char *name)
{
    const char *rest = strchr(name, ':');
    return rest && !strcmp(path, rest + 1);
}

static void remember(const char *path)
{
    struct name *name = path && strstr(path, "://") ? malloc(sizeof *name) : NULL;
    for (struct name *known = names; name && known; known = known->next)
        if (!strcmp(known->text, path)) {
            free(name);
            return;
        }
    if (name && (name->text = strdup(path))) {
        name->next = names;
        names = name;
    }
}

/* Returns the name for libgodwit, to be freed, or NULL: it is no name that was meant. */
static char *meant_by(const char *path)
{
    if (!path)
        return NULL;
    if (running && (!strcmp(path, running) || is_rest_of(path, running)))
        return grid_name(running);
    for (struct name *name = strncmp(path, "//", 2) ? NULL : names; name; name = name->next)
        if (is_rest_of(path, name->text))
            return grid_name(name->text);
    return NULL;
}

/* Frees a name, and returns what a function of POSIX does. */
static int told(char *url, int failed)
{
    free(url);
    if (failed)
        errno = godwit_error();
    return failed ? -1 : 0;
}

/* Asks the server, whatever is known of the name. */
static int has_file(const char *url)
{
    int file = godwit_open(url, O_RDWR, NULL);
    return file >= 0 && !godwit_file_close(file);
}

/* Returns a file in memory with the begin of the file. */
static int begin_of(const char *url)
{
    char bytes[MAGIC_BYTES];
    int64_t size = gass_get(url, 0, bytes, sizeof bytes);
    int fd = size < 0 ? -1 : memfd_create("begin", MFD_CLOEXEC);
    if (fd >= 0 && pwrite(fd, bytes, size, 0) != size) {
        close(fd);
        return -1;
    }
    return fd;
}

#define EXPORTED __attribute__((visibility("default")))
#define FOLLOWED(name, parameters, ...)                                                                                \
    EXPORTED int name parameters;                                                                                      \
    EXPORTED int name parameters                                                                                       \
    {                                                                                                                  \
        const char *before = running;                                                                                  \
        remember(path);                                                                                                \
        running = path;                                                                                                \
        int code = NATIVE(name)(__VA_ARGS__);                                                                          \
        running = before;                                                                                              \
        return code;                                                                                                   \
    }
FOLLOWED(ncmpi_create, (MPI_Comm comm, const char *path, int mode, MPI_Info info, int *id), comm, path, mode, info, id)
FOLLOWED(ncmpi_open, (MPI_Comm comm, const char *path, int mode, MPI_Info info, int *id), comm, path, mode, info, id)
FOLLOWED(ncmpi_delete, (const char *path, MPI_Info info), path, info)
FOLLOWED(ncmpi_inq_file_format, (const char *path, int *format), path, format)

EXPORTED int access(const char *path, int how)
{
    char *url = meant_by(path);
    return url ? told(url, !has_file(url)) : NATIVE(access)(path, how);
}

EXPORTED int unlink(const char *path)
{
    char *url = meant_by(path);
    return url ? told(url, godwit_remove(url)) : NATIVE(unlink)(path);
}

#define TRUNCATE(name)                                                                                                 \
    EXPORTED int name(const char *path, off_t size)                                                                    \
    {                                                                                                                  \
        char *url = meant_by(path);                                                                                    \
        return url ? told(url, godwit_truncate(url, size)) : NATIVE(name)(path, size);                                 \
    }
TRUNCATE(truncate)
TRUNCATE(truncate64)

#define OPEN(name)                                                                                                     \
    EXPORTED int name(const char *path, int flags, ...)                                                                \
    {                                                                                                                  \
        char *url = (flags & O_ACCMODE) == O_RDONLY ? meant_by(path) : NULL;                                           \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode_t mode = flags & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY)) ? va_arg(rest, mode_t) : 0;                                        \
        va_end(rest);                                                                                                  \
        if (!url)                                                                                                      \
            return NATIVE(name)(path, flags, mode);                                                                    \
        int fd = begin_of(url);                                                                                        \
        told(url, fd < 0);                                                                                             \
        return fd;                                                                                                     \
    }
OPEN(open)
OPEN(open64)
