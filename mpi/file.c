/* file.c: opens and closes files of the grid, and does what changes a file as a whole. */
#include "file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- The files that are open ------------------------------------------------------------------------------ */

static struct file *files;
static pthread_mutex_t files_lock = PTHREAD_MUTEX_INITIALIZER;

struct file *file_of(MPI_File handle)
{
    struct file *file;
    if (!__atomic_load_n(&files, __ATOMIC_RELAXED))
        return NULL;
    pthread_mutex_lock(&files_lock);
    file = files;
    while (file && file->handle != handle)
        file = file->next;
    pthread_mutex_unlock(&files_lock);
    return file;
}

static void keep(struct file *file)
{
    pthread_mutex_lock(&files_lock);
    file->next = files;
    files = file;
    pthread_mutex_unlock(&files_lock);
}

static void forget(struct file *file)
{
    pthread_mutex_lock(&files_lock);
    struct file **at = &files;
    while (*at && *at != file)
        at = &(*at)->next;
    if (*at)
        *at = file->next;
    pthread_mutex_unlock(&files_lock);
}

int agree(struct file *file, int class)
{
    int highest = class;
    PMPI_Allreduce(&class, &highest, 1, MPI_INT, MPI_MAX, file->comm);
    return highest;
}

int64_t file_size(const struct file *file)
{
    struct stat stat;
    return fstat(file->fd, &stat) ? 0 : stat.st_size;
}

/* Closes what there is of a file. */
static void file_free(struct file *file)
{
    if (file->shared >= 0)
        godwit_file_close(file->shared);
    if (file->comm != MPI_COMM_NULL)
        PMPI_Comm_free(&file->comm);
    if (file->view.layout)
        view_end(&file->view);
    link_free(file->link);
    pthread_mutex_destroy(&file->lock);
    free(file->url);
    free(file);
}

static struct file *file_new(MPI_Comm comm, char *url, int mode, MPI_Info info)
{
    struct file *file = calloc(1, sizeof *file);
    if (!file) {
        free(url);
        return NULL;
    }
    file->url = url;
    file->mode = mode;
    file->shared = file->fd = -1;
    pthread_mutex_init(&file->lock, NULL);
    if (PMPI_Comm_dup(comm, &file->comm) || view_begin(&file->view)) {
        file_free(file);
        return NULL;
    }
    PMPI_Comm_set_errhandler(file->comm, MPI_ERRORS_RETURN);
    PMPI_Comm_rank(file->comm, &file->rank);
    PMPI_Comm_size(file->comm, &file->ranks);
    hints_read(&file->hints, info);
    return file;
}

/* ---- Open ------------------------------------------------------------------------------------------------- */

/* All handles of a program's file are one file at a node: what one of them wrote, another may overwrite or read. Without
 * MPI_Init, as with sessions of MPI-4, each open is for itself. */
enum { SESSION_BYTES = 33 };
static char job[SESSION_BYTES];

static int new_session(char *session)
{
    uint64_t random[2];
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return -1;
    snprintf(session, SESSION_BYTES, "%016llx%016llx", (unsigned long long)random[0], (unsigned long long)random[1]);
    return 0;
}

static int initialised(int code)
{
    int rank = 0;
    if (code)
        return code;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (!rank)
        new_session(job);
    PMPI_Bcast(job, sizeof job, MPI_CHAR, 0, MPI_COMM_WORLD);
    return code;
}

BOTH(Init, (int *count, char ***words))
{
    return initialised(NATIVE(PMPI_Init)(count, words));
}

BOTH(Init_thread, (int *count, char ***words, int wanted, int *given))
{
    return initialised(NATIVE(PMPI_Init_thread)(count, words, wanted, given));
}

static const char *bad_mode(int mode)
{
    int ways = ((mode & MPI_MODE_RDONLY) != 0) + ((mode & MPI_MODE_WRONLY) != 0) + ((mode & MPI_MODE_RDWR) != 0);
    if (ways != 1)
        return "one of MPI_MODE_RDONLY, MPI_MODE_WRONLY and MPI_MODE_RDWR is needed";
    if (mode & MPI_MODE_RDONLY && mode & (MPI_MODE_CREATE | MPI_MODE_EXCL))
        return "MPI_MODE_RDONLY cannot be with MPI_MODE_CREATE or MPI_MODE_EXCL";
    if (mode & MPI_MODE_RDWR && mode & MPI_MODE_SEQUENTIAL)
        return "MPI_MODE_RDWR cannot be with MPI_MODE_SEQUENTIAL";
    return NULL;
}

static int64_t hash_of(const char *text)
{
    uint64_t hash = 14695981039346656037u;
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    return (int64_t)(hash >> 1);
}

/* All ranks give one name and one mode, and it is a mode that there is. */
static int check_arguments(const struct file *file)
{
    int64_t hash = hash_of(file->url), mine[] = {file->mode, -file->mode, hash, -hash}, most[4];
    const char *why = bad_mode(file->mode);
    int class = MPI_ERR_AMODE;
    PMPI_Allreduce(mine, most, 4, MPI_INT64_T, MPI_MAX, file->comm);
    if (most[0] != -most[1] || most[2] != -most[3]) {
        class = MPI_ERR_NOT_SAME;
        why = most[0] != -most[1] ? "the ranks give different modes" : "the ranks give different names";
    }
    return why ? report_once(file, "open", class, why) : MPI_SUCCESS;
}

/* Counts the machines of the ranks, by the nodes they talk with. */
static int count_nodes(struct file *file)
{
    char word[256] = "";
    int class = MPI_SUCCESS;
    int64_t mine, *all = calloc(file->ranks, sizeof *all);
    if (!all)
        class = report("open", file->url, MPI_ERR_NO_MEM, "no memory");
    else if (godwit_node_name(word, sizeof word) < 0)
        class = report_grid();
    class = agree(file, class);
    if (!class) {
        mine = hash_of(word);
        PMPI_Allgather(&mine, 1, MPI_INT64_T, all, 1, MPI_INT64_T, file->comm);
        for (int i = 0, j; i < file->ranks; i++) {
            for (j = 0; all[j] != all[i]; j++)
                ;
            file->nodes += i == j;
            file->node = i == file->rank ? j : file->node;
        }
    }
    free(all);
    return class;
}

/* What rank 0 tells the others. */
struct invitation {
    int32_t class;
    char session[SESSION_BYTES];
    struct hints hints;
    struct coordinator coordinator;
};

static int open_shared(struct file *file, const char *session, int extra)
{
    struct godwit_open_options options = {
        .size = sizeof options,
        .session = session,
        .parallelism = file->hints.parallelism,
        .tcp_buffer = file->hints.tcp_buffer,
        .stream_mode = file->hints.is_stream,
        .one_host = file->hints.is_one_host,
    };
    int flags = (file->mode & MPI_MODE_RDONLY ? O_RDONLY : O_RDWR) | extra;
    file->shared = godwit_open(file->url, flags, &options);
    if (file->shared < 0)
        return report_grid();
    file->fd = godwit_file_fd(file->shared);
    return MPI_SUCCESS;
}

/* Rank 0 opens, and creates, the file; the others open what is there then. */
static int open_together(struct file *file)
{
    struct invitation invitation = {0};
    int class = count_nodes(file);
    if (class)
        return class;
    if (!file->rank) {
        int extra = (file->mode & MPI_MODE_CREATE ? O_CREAT : 0) | (file->mode & MPI_MODE_EXCL ? O_EXCL : 0);
        strcpy(invitation.session, job);
        if ((!*job && new_session(invitation.session)) ||
            (file->ranks > 1 && coordinator_begin(&invitation.coordinator, file->nodes == 1)))
            class = report("open", file->url, MPI_ERR_IO, "no thread or port for the ranks to share a pointer");
        if (!class)
            class = open_shared(file, invitation.session, extra);
        invitation.class = class;
        invitation.hints = file->hints;
    }
    PMPI_Bcast(&invitation, sizeof invitation, MPI_BYTE, 0, file->comm);
    if (invitation.class)
        return invitation.class;
    file->hints = invitation.hints;
    file->link = link_new(file->ranks > 1 ? &invitation.coordinator : NULL);
    if (!file->link)
        return report("open", file->url, MPI_ERR_NO_MEM, "no memory");
    return file->rank ? open_shared(file, invitation.session, 0) : MPI_SUCCESS;
}

/* Opens the handle that the program has. */
static int open_handle(struct file *file, MPI_Info info)
{
    int kept = MPI_MODE_RDONLY | MPI_MODE_WRONLY | MPI_MODE_RDWR;
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file->fd);
    if (NATIVE(PMPI_File_open)(MPI_COMM_SELF, path, file->mode & kept, info, &file->handle))
        return report("open", file->url, MPI_ERR_IO, "the MPI does not open its local file");
    return MPI_SUCCESS;
}

static int open_file(MPI_Comm comm, char *url, int mode, MPI_Info info, MPI_File *handle)
{
    struct file *file = file_new(comm, url, mode, info);
    int class, mine;
    if (!file)
        return raise_on_open(MPI_ERR_NO_MEM);
    class = check_arguments(file);
    if (!class) {
        mine = open_together(file);
        int has_handle = !mine && !(mine = open_handle(file, info));
        class = file->ranks > 1 ? agree(file, mine) : mine;
        if (class && has_handle)
            NATIVE(PMPI_File_close)(&file->handle);
    }
    if (class) {
        file_free(file);
        return raise_on_open(class);
    }
    if (mode & MPI_MODE_APPEND) {
        file->pointer = file_size(file);
        class = file->rank ? MPI_SUCCESS : shared_set(file, file->pointer);
        PMPI_Bcast(&class, 1, MPI_INT, 0, file->comm);
    }
    keep(file);
    *handle = file->handle;
    return raise_on(file, class);
}

BOTH(File_open, (MPI_Comm comm, const char *name, int mode, MPI_Info info, MPI_File *handle))
{
    int is_between = 1;
    char *url = name && handle && comm != MPI_COMM_NULL ? grid_name(name) : NULL;
    if (url && (PMPI_Comm_test_inter(comm, &is_between) || is_between)) {
        free(url);
        url = NULL;
    }
    return url ? open_file(comm, url, mode, info, handle) : NATIVE(PMPI_File_open)(comm, name, mode, info, handle);
}

/* ---- Sync and close --------------------------------------------------------------------------------------- */

static int sync_shared(struct file *file, int flags, int64_t *bytes)
{
    *bytes = godwit_sync(file->shared, flags);
    return *bytes < 0 ? report_grid() : MPI_SUCCESS;
}

/* Says something about the file for all handles that this process has of it: they are one file at the node. */
static int sync_handles(struct file *file, int flags)
{
    int64_t bytes;
    int class = MPI_SUCCESS;
    pthread_mutex_lock(&files_lock);
    for (struct file *each = files; each && !class; each = each->next)
        if (!(each->mode & MPI_MODE_RDONLY) && !strcmp(each->url, file->url))
            class = sync_shared(each, flags, &bytes);
    pthread_mutex_unlock(&files_lock);
    return class;
}

/* Returns in which turn the node of this rank delivers, and sets how many turns there are. A node that wrote all bytes
 * of its local file replaces the server's file: it must come before those that have bytes behind its end. So nodes that
 * wrote the first byte deliver one after another, the shortest file first, and then the others together. */
static int turn_of(const struct file *file, int *turns)
{
    struct { int64_t node, size, has_begin; } mine = {file->node, file_size(file), file->wrote_begin}, *all, *me, *other;
    int turn = 0;
    *turns = 1;
    if (file->nodes == 1 || !(all = calloc(file->ranks, sizeof *all)))
        return 0;
    PMPI_Allgather(&mine, 3, MPI_INT64_T, all, 3, MPI_INT64_T, file->comm);
    for (int i = 0; i < file->ranks; i++)
        all[all[i].node].has_begin |= all[i].has_begin;
    me = &all[file->node];
    for (int i = 0; i < file->ranks; i++) {
        other = &all[i];
        if (other->node != i || !other->has_begin)
            continue;
        ++*turns;
        turn += !me->has_begin || other->size < me->size || (other->size == me->size && i < file->node);
    }
    free(all);
    return turn;
}

/* Delivers what all ranks wrote, once from each node; `is_changed` is set if nodes
 * have changed what others may have read. */
static int deliver(struct file *file, int *is_changed)
{
    int turns, turn = turn_of(file, &turns), leads = file->node == file->rank;
    int64_t mine = 0, all = 0;
    int class = agree(file, sync_handles(file, GODWIT_SYNC_TELL));
    for (int i = 0; i < turns && !class; i++) {
        if (i == turn && leads)
            class = sync_shared(file, 0, &mine);
        class = agree(file, class);
    }
    if (!class && file->nodes > 1)
        PMPI_Allreduce(&mine, &all, 1, MPI_INT64_T, MPI_MAX, file->comm);
    file->wrote_begin &= class != MPI_SUCCESS;
    *is_changed = all > 0;
    return class;
}

int synchronise(struct file *file)
{
    int64_t bytes;
    int is_changed, class = deliver(file, &is_changed);
    /* One rank of each machine asks the server; then all forget what they know to be here. */
    if (!class && file->node == file->rank)
        class = sync_shared(file, is_changed ? GODWIT_SYNC_CHANGED : GODWIT_SYNC_LOOK, &bytes);
    class = agree(file, class);
    return class ? class : sync_handles(file, GODWIT_SYNC_TELL | GODWIT_SYNC_LOOK);
}

BOTH(File_sync, (MPI_File handle))
{
    struct file *file = file_of(handle);
    if (!file)
        return NATIVE(PMPI_File_sync)(handle);
    if (file->mode & MPI_MODE_RDONLY)
        return raise_on(file, report("sync", file->url, MPI_ERR_READ_ONLY, "it is opened to be read"));
    return raise_on(file, synchronise(file));
}

/* Appends a line to the file that GODWIT_MPI_REPORT names. */
static void report_bytes(struct file *file)
{
    const char *path = getenv("GODWIT_MPI_REPORT");
    struct godwit_file_report report = {.size = sizeof report};
    int is_first = !file->rank, is_asked = path && *path;
    PMPI_Bcast(&is_asked, 1, MPI_INT, 0, file->comm);
    if (!is_asked)
        return;
    if (file->node == file->rank)
        godwit_file_report(file->shared, &report); /* of all ranks of the machine */
    uint64_t mine[] = {file->bytes_read, report.fetched, file->bytes_written, report.delivered, report.transfers}, all[5];
    PMPI_Reduce(mine, all, 5, MPI_UINT64_T, MPI_SUM, 0, file->comm);
    int fd = is_first ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
    if (fd < 0)
        return;
    char line[4096];
    int length = snprintf(line, sizeof line,
                          "{\"file\":\"%.3000s\",\"ranks\":%d,\"nodes\":%d,\"read\":%llu,\"fetched\":%llu,\"written\":%llu,"
                          "\"delivered\":%llu,\"requests\":%llu}\n",
                          file->url, file->ranks, file->nodes, (unsigned long long)all[0], (unsigned long long)all[1],
                          (unsigned long long)all[2], (unsigned long long)all[3], (unsigned long long)all[4]);
    if (write(fd, line, length) != length)
        dprintf(2, "godwit mpi: cannot write %s, the report\n", path);
    close(fd);
}

BOTH(File_close, (MPI_File *handle))
{
    struct file *file = handle ? file_of(*handle) : NULL;
    int class = MPI_SUCCESS, removed = MPI_SUCCESS, is_changed;
    if (!file)
        return NATIVE(PMPI_File_close)(handle);
    int is_removed = (file->mode & MPI_MODE_DELETE_ON_CLOSE) != 0;
    if (!is_removed && !(file->mode & MPI_MODE_RDONLY))
        class = deliver(file, &is_changed);
    report_bytes(file);
    forget(file);
    godwit_file_close(file->shared);
    file->shared = -1;
    PMPI_Barrier(file->comm);
    if (is_removed && !file->rank && godwit_remove(file->url))
        removed = report_grid();
    if (is_removed)
        PMPI_Bcast(&removed, 1, MPI_INT, 0, file->comm);
    class = class ? class : removed;
    raise_on(file, class);
    NATIVE(PMPI_File_close)(handle);
    file_free(file);
    return class;
}

BOTH(File_delete, (const char *name, MPI_Info info))
{
    char *url = name ? grid_name(name) : NULL;
    int class = MPI_SUCCESS;
    if (!url)
        return NATIVE(PMPI_File_delete)(name, info);
    if (godwit_remove(url))
        class = report_grid();
    free(url);
    return class ? raise_on_open(class) : MPI_SUCCESS;
}

/* ---- Size and mode ---------------------------------------------------------------------------------------- */

/* Has all ranks tell their libraries the size that the shared file of their machine has now. */
static int resize(struct file *file, MPI_Offset size, int only_grows)
{
    int64_t mine[] = {size, -size, file_size(file)}, most[3];
    int class, is_changed;
    PMPI_Allreduce(mine, most, 3, MPI_INT64_T, MPI_MAX, file->comm);
    if (most[0] != -most[1])
        return report_once(file, "resize", MPI_ERR_NOT_SAME, "the ranks give different sizes");
    if (size < 0)
        return report_once(file, "resize", MPI_ERR_ARG, "the size is negative");
    if (file->mode & MPI_MODE_RDONLY)
        return report_once(file, "resize", MPI_ERR_READ_ONLY, "it is opened to be read");
    if (file->mode & MPI_MODE_SEQUENTIAL)
        return report_once(file, "resize", MPI_ERR_UNSUPPORTED_OPERATION, "it is sequential");
    if (only_grows && size <= most[2])
        return MPI_SUCCESS;
    /* Each machine delivers the new size: no bytes may lie behind it by then that another has not seen. */
    class = file->nodes > 1 ? synchronise(file) : MPI_SUCCESS;
    if (!class)
        class = agree(file, godwit_resize(file->shared, size) ? report_grid() : MPI_SUCCESS);
    return class || file->nodes == 1 ? class : deliver(file, &is_changed);
}

BOTH(File_set_size, (MPI_File handle, MPI_Offset size))
{
    struct file *file = file_of(handle);
    return file ? raise_on(file, resize(file, size, 0)) : NATIVE(PMPI_File_set_size)(handle, size);
}

BOTH(File_preallocate, (MPI_File handle, MPI_Offset size))
{
    struct file *file = file_of(handle);
    return file ? raise_on(file, resize(file, size, 1)) : NATIVE(PMPI_File_preallocate)(handle, size);
}

BOTH(File_get_size, (MPI_File handle, MPI_Offset *size))
{
    struct file *file = file_of(handle);
    if (!file)
        return NATIVE(PMPI_File_get_size)(handle, size);
    *size = file_size(file);
    return MPI_SUCCESS;
}

BOTH(File_get_group, (MPI_File handle, MPI_Group *group))
{
    struct file *file = file_of(handle);
    return file ? PMPI_Comm_group(file->comm, group) : NATIVE(PMPI_File_get_group)(handle, group);
}

BOTH(File_get_amode, (MPI_File handle, int *mode))
{
    struct file *file = file_of(handle);
    if (!file)
        return NATIVE(PMPI_File_get_amode)(handle, mode);
    *mode = file->mode;
    return MPI_SUCCESS;
}

BOTH(File_get_info, (MPI_File handle, MPI_Info *info))
{
    struct file *file = file_of(handle);
    int code = NATIVE(PMPI_File_get_info)(handle, info);
    if (file && !code)
        hints_tell(file, *info);
    return code;
}

BOTH(File_set_atomicity, (MPI_File handle, int is_atomic))
{
    struct file *file = file_of(handle);
    int mine[] = {is_atomic != 0, -(is_atomic != 0)}, most[2], class;
    if (!file)
        return NATIVE(PMPI_File_set_atomicity)(handle, is_atomic);
    PMPI_Allreduce(mine, most, 2, MPI_INT, MPI_MAX, file->comm);
    if (most[0] != -most[1])
        return raise_on(file, report_once(file, "set the atomicity of", MPI_ERR_NOT_SAME, "the ranks give different flags"));
    /* What was written before is seen by accesses from now on, also on other machines. */
    class = file->nodes > 1 && !(file->mode & MPI_MODE_RDONLY) ? synchronise(file) : MPI_SUCCESS;
    if (!class)
        file->is_atomic = is_atomic != 0;
    return raise_on(file, class);
}

BOTH(File_get_atomicity, (MPI_File handle, int *is_atomic))
{
    struct file *file = file_of(handle);
    if (!file)
        return NATIVE(PMPI_File_get_atomicity)(handle, is_atomic);
    *is_atomic = file->is_atomic;
    return MPI_SUCCESS;
}
