/* gfarm.h: files in fragments, by the parallel calls of the Grid Datafarm.
 *
 * Link with -lgodwit. A file is named gfarm:/path/name or grid:/path/name. It has fragments in order, each of any length
 * and on any node. Each process of a job opens the same name and chooses a view: its own fragment (the local view), a
 * fragment by its index, or the whole file. Calls block, are not collective, and each handle has a pointer of its own.
 *
 * Every call returns NULL, or a sentence that says why not. It stands until the next call of that thread fails.
 *
 * Rank and count of the processes come from GODWIT_FRAGMENT and GODWIT_FRAGMENTS, SLURM_PROCID and SLURM_NTASKS,
 * PMI_RANK and PMI_SIZE, or OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE; the name of the job from GODWIT_JOB or
 * SLURM_JOB_ID. Without any of them the process is a job of its own.
 */
#ifndef GFARM_H
#define GFARM_H

#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gfs_file *GFS_File;
typedef GFS_File GFS_FILE;

/* Flags: exactly one of the first three, and hints. */
#define GFARM_FILE_RDONLY 0x1
#define GFARM_FILE_WRONLY 0x2
#define GFARM_FILE_RDWR 0x4
#define GFARM_FILE_SEQUENTIAL 0x100      /* it is read from its begin to its end */
#define GFARM_FILE_REPLICATION 0x200     /* a fragment of another node gets a copy on this node when it is opened */
#define GFARM_FILE_NOT_REPLICATION 0x400 /* it gets none */
#define GFARM_FILE_DONTCARE (-1)

#define GFS_FILE_RDONLY GFARM_FILE_RDONLY
#define GFS_FILE_WRONLY GFARM_FILE_WRONLY
#define GFS_FILE_RDWR GFARM_FILE_RDWR
#define GFS_FILE_SEQUENTIAL GFARM_FILE_SEQUENTIAL
#define GFS_FILE_REPLICATION GFARM_FILE_REPLICATION
#define GFS_FILE_NOT_REPLICATION GFARM_FILE_NOT_REPLICATION
#define GFS_FILE_DONTCARE GFARM_FILE_DONTCARE

/* These do nothing: the first call that needs the node of this machine finds it. */
char *gfarm_initialize(int *argc, char ***argv);
char *gfarm_terminate(void);

/* Opens a file that exists; its view is the whole file. What is written makes a new version: it begins as a copy, and is
 * published by the last close. Readers keep the version that they opened. Where it fails, *gf is NULL. */
char *gfs_pio_open(char *url, int flags, GFS_File *gf);
/* Begins a new file; the name must be free. `mode` is modified by the umask. Nothing is visible until the last fragment
 * is closed. If a process ends without gfs_pio_close(), the file is given up, and its name is free. */
char *gfs_pio_create(char *url, int flags, mode_t mode, GFS_File *gf);

/* Choose what is seen; the pointer is 0 then. After a byte was written they fail. `flags`: hints, or 0. */
char *gfs_pio_set_view_global(GFS_File gf, int flags);
/* The fragment of this process: its index is the rank. A file that exists has as many fragments as the job processes. */
char *gfs_pio_set_view_local(GFS_File gf, int flags);
/* The fragment `index` of `nfrags`, on the node `host`. Of a file that exists `nfrags` may be GFARM_FILE_DONTCARE, and
 * `host` NULL; of a new one `host` NULL is this node. */
char *gfs_pio_set_view_index(GFS_File gf, int nfrags, int index, char *host, int flags);

/* Reads up to `size` bytes; *nread is 0 at the end of the view. Bytes that differ from the digest of their fragment are
 * read from another copy, or not at all. */
char *gfs_pio_read(GFS_File gf, void *buf, int size, int *nread);
char *gfs_pio_write(GFS_File gf, void *buf, int size, int *nwrite);
/* `whence` as for lseek(2); *result, unless `result` is NULL, is the new place in the view. */
char *gfs_pio_seek(GFS_File gf, off_t offset, int whence, off_t *result);
/* Makes the fragment durable, registers it, and publishes the file if all its fragments are there. */
char *gfs_pio_close(GFS_File gf);

#ifdef __cplusplus
}
#endif

#endif
