/* file.h: an MPI file that is a file of the grid, and what the parts of this library call of each other.
 *
 * The program has a handle of its MPI, opened on MPI_COMM_SELF and on the local file that all ranks of a machine share.
 * So its error handlers, comparisons and Fortran numbers are the MPI's. The MPI moves no byte through it, and its
 * view and pointers stay as they were at the open: those that count are below. */
#ifndef GODWIT_MPI_FILE_H
#define GODWIT_MPI_FILE_H

#include "layout.h"

#include <dlfcn.h>
#include <godwit.h>
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>

/* ---- Names of two libraries ------------------------------------------------------------------------------- */

#ifdef GODWIT_MPI_STATIC
/* Linked into the program before the MPI: MPI_name is defined here, and PMPI_name is the MPI's. */
#define NATIVE(name) name
#define BOTH(name, parameters) int MPI_##name parameters
#else
/* The function of the MPI, or of a tool that stands before it. */
#define NATIVE(name)                                                                                                   \
    ({                                                                                                                 \
        static __typeof__(&name) native_;                                                                              \
        if (!native_)                                                                                                  \
            native_ = (__typeof__(&name))dlsym(RTLD_NEXT, #name);                                                      \
        native_;                                                                                                       \
    })

/* Defines MPI_name, and PMPI_name as another name of it: Fortran programs of Open MPI, and tools, call the second. */
#define BOTH(name, parameters)                                                                                         \
    __attribute__((visibility("default"))) int MPI_##name parameters;                                                  \
    __attribute__((visibility("default"), alias("MPI_" #name))) int PMPI_##name parameters;                            \
    int MPI_##name parameters
#endif

/* ---- Files ------------------------------------------------------------------------------------------------ */

struct view {
    int64_t displacement;
    int64_t etype_size; /* in the file */
    struct layout *layout;
    MPI_Datatype etype, file_type; /* copies */
    enum representation representation;
    char name[MPI_MAX_DATAREP_STRING]; /* of the representation */
};

/* The keys of MPI_Info, those of rank 0 for all. 0: no hint. */
struct hints {
    uint32_t parallelism, tcp_buffer;
    int32_t is_stream, is_one_host;
};

/* A split collective call that has begun. */
struct split {
    const struct call *call; /* NULL: none has */
    struct reading *reading; /* NULL: it has moved its bytes */
    int64_t moved;
    int class;
};

struct file {
    struct file *next;
    MPI_File handle;
    MPI_Comm comm; /* a copy, whose errors are returned */
    int rank, ranks;
    int nodes;     /* on how many machines it is open */
    int node;      /* the first rank of this machine */
    int mode;      /* of MPI_File_open */
    int shared;    /* of godwit_open() */
    int fd;        /* of the shared local file */
    char *url;
    struct view view;
    struct hints hints;
    pthread_mutex_t lock; /* of `pointer` */
    int64_t pointer;      /* in etypes */
    int is_atomic;
    struct split split;
    struct link *link; /* to the coordinator */
    int wrote_begin; /* this rank has written the first byte since the last delivery */
    uint64_t bytes_read, bytes_written;
};

/* Returns the file of a handle, or NULL: it is the MPI's alone. */
struct file *file_of(MPI_File);
/* Returns the highest error class of all ranks. */
int agree(struct file *, int class);
/* Delivers what all ranks wrote, and looks for what others wrote. Collective. */
int synchronise(struct file *);
int64_t file_size(const struct file *);

/* Returns the name for libgodwit, to be freed, or NULL: it is a file for the MPI. */
char *grid_name(const char *name);

/* ---- Failures --------------------------------------------------------------------------------------------- */

/* Prints why a call fails, in one sentence, and returns `class`. */
int report(const char *wanted, const char *url, int class, const char *why);
/* The same where all ranks fail alike: rank 0 prints. */
int report_once(const struct file *, const char *wanted, int class, const char *why);
/* Prints why a function of libgodwit failed, and returns the error class that it means. */
int report_grid(void);
/* Calls the error handler of the file, and returns what the call returns. */
int raise_on(struct file *, int class);
/* Calls the handler that files have from their open, where there is none yet. */
int raise_on_open(int class);

/* ---- Views ------------------------------------------------------------------------------------------------ */

/* Ranges of the file, in the order of the data. */
struct ranges {
    struct godwit_range *each;
    size_t count, room;
    int64_t bytes;
    int is_broken; /* no memory */
};

/* The most ranges of one step, so that memory stays bounded. */
enum { RANGES_MOST = 1 << 20 };

int view_begin(struct view *);
void view_end(struct view *);
/* Appends the ranges of bytes `from` to `to` of the data that the view shows, until there are RANGES_MOST. */
void view_ranges(const struct view *, int64_t from, int64_t to, struct ranges *);
/* Returns the offset, in etypes, behind the last byte of the file. */
int64_t view_end_of_file(const struct file *);

/* ---- Accesses --------------------------------------------------------------------------------------------- */

enum direction { READ, WRITE };
/* Where an access begins: at an offset, the own pointer, the shared one, or there in the order of ranks. */
enum pointer { AT, OWN, SHARED, ORDERED };

struct call {
    const char *name;
    enum pointer pointer;
    enum direction direction;
};

/* What is to be moved. */
struct access {
    struct file *file;
    enum direction direction;
    int64_t at;             /* in bytes of data of the view */
    int64_t bytes;          /* in the file */
    char *memory;
    int64_t count;
    MPI_Datatype type;      /* for external32 alone: it may be freed by then */
    struct layout *layout;  /* of the type, in memory */
};

int access_begin(struct access *, const struct call *, int64_t offset, void *memory, int64_t count, MPI_Datatype);
void access_end(struct access *);
/* Moves the bytes; `moved` are those of the memory. Returns an error class. */
int access_move(struct access *, int64_t *moved);
void set_status(MPI_Status *, int64_t moved);

/* A read that waits for bytes from the server. */
struct reading;
/* Takes over the access. NULL: it cannot wait, and is to be moved at once. */
struct reading *reading_begin(struct access *);
int reading_end(struct reading *, int64_t *moved);
int request_of_reading(struct reading *, MPI_Request *);
int request_of_done(int64_t moved, MPI_Request *);

/* ---- Coordinator ------------------------------------------------------------------------------------------ */

/* Where the coordinator of a file is, as rank 0 tells the others. */
struct coordinator {
    uint64_t token[2], file;
    uint32_t addresses[8]; /* IPv4, in the order of the network; 0: no more */
    uint32_t port;
};

/* In rank 0. `is_near`: all ranks are on this machine. */
int coordinator_begin(struct coordinator *, int is_near);
/* No connection is made before one is needed. */
struct link *link_new(const struct coordinator *);
void link_free(struct link *);
/* Return an error class. */
int shared_add(struct file *, int64_t etypes, int64_t *before);
int shared_set(struct file *, int64_t etypes);
int lock_file(struct file *);
int unlock_file(struct file *);

/* ---- Hints ------------------------------------------------------------------------------------------------ */

void hints_read(struct hints *, MPI_Info);
void hints_tell(const struct file *, MPI_Info);

#endif
