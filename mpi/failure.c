/* failure.c: error classes, sentences for people, and error handlers. */
#include "file.h"

#include <errno.h>
#include <stdio.h>

int report(const char *wanted, const char *url, int class, const char *why)
{
    dprintf(2, "godwit mpi: cannot %s %s: %s\n", wanted, url, why);
    return class;
}

int report_once(const struct file *file, const char *wanted, int class, const char *why)
{
    return file->rank ? class : report(wanted, file->url, class, why);
}

static int class_of(int error)
{
    switch (error) {
    case ENOENT:
    case ENOTDIR:
        return MPI_ERR_NO_SUCH_FILE;
    case EEXIST:
        return MPI_ERR_FILE_EXISTS;
    case EACCES:
    case EPERM:
    case EROFS:
        return MPI_ERR_ACCESS;
    case ENOSPC:
        return MPI_ERR_NO_SPACE;
    case EDQUOT:
        return MPI_ERR_QUOTA;
    case EINVAL:
    case EISDIR:
    case ENAMETOOLONG:
        return MPI_ERR_BAD_FILE;
    case EBUSY:
    case ETXTBSY:
        return MPI_ERR_FILE_IN_USE;
    case EOPNOTSUPP:
    case ENOSYS:
        return MPI_ERR_UNSUPPORTED_OPERATION;
    default:
        return MPI_ERR_IO;
    }
}

int report_grid(void)
{
    const char *hint = godwit_hint();
    dprintf(2, "godwit mpi: %s%s%s\n", godwit_strerror(), *hint ? "; " : "", hint);
    return class_of(godwit_error());
}

/* An error class is an error code, too. A handler may end the program. */
int raise_on(struct file *file, int class)
{
    if (class)
        PMPI_File_call_errhandler(file->handle, class);
    return class;
}

/* A file of the MPI that is not there has the MPI call the handler, which may change what the open returns. For other
 * classes the handler is called as far as each MPI can do that: Open MPI calls those of open files alone, which have the
 * handler from their open, and MPICH 4.0.2 miscounts its uses if such a file is closed. */
int raise_on_open(int class)
{
    MPI_File null;
    if (class == MPI_ERR_NO_SUCH_FILE)
        return NATIVE(PMPI_File_open)(MPI_COMM_SELF, "/dev/godwit-none", MPI_MODE_RDONLY, MPI_INFO_NULL, &null);
#ifdef OPEN_MPI
    if (!NATIVE(PMPI_File_open)(MPI_COMM_SELF, "/dev/null", MPI_MODE_RDWR, MPI_INFO_NULL, &null)) {
        PMPI_File_call_errhandler(null, class);
        NATIVE(PMPI_File_close)(&null);
    }
#else
    PMPI_File_call_errhandler(MPI_FILE_NULL, class);
#endif
    return class;
}
