/* access.c: moves bytes between memory and the local file that the ranks of a machine share. What is missing there is
 * fetched first; what is written there is delivered by a sync. Bytes between those that are asked for are not touched. */
#include "file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* How much of a type with gaps is packed at a time. */
enum { STAGED_BYTES = 4 << 20 };

/* ---- external32 ------------------------------------------------------------------------------------------- */

/* As much of a type as the functions of MPI-3 can count. */
static int64_t step_of(int64_t count, int64_t size)
{
    int64_t most = size ? (1 << 30) / size : count;
    most = most ? most : 1;
    return count < most ? count : most;
}

/* Converts instances of a type to or from external32, in steps. Both sizes are those of one instance. */
static int convert(const struct access *access, char *external, int64_t size, int64_t count)
{
    MPI_Aint lower, extent;
    PMPI_Type_get_extent(access->type, &lower, &extent);
    for (int64_t done = 0, step; done < count; done += step) {
        MPI_Aint at = 0;
        step = step_of(count - done, size);
        char *memory = access->memory + done * extent, *there = external + done * size;
        int code = access->direction == WRITE
                       ? PMPI_Pack_external("external32", memory, (int)step, access->type, there, step * size, &at)
                       : PMPI_Unpack_external("external32", there, step * size, &at, memory, (int)step, access->type);
        if (code)
            return MPI_ERR_CONVERSION;
    }
    return MPI_SUCCESS;
}

/* ---- Begin and end ---------------------------------------------------------------------------------------- */

/* Returns where an access begins, in etypes, and moves the pointer that says so. */
static int place(struct file *file, const struct call *call, int64_t etypes, int64_t *offset)
{
    int64_t before = 0, all = 0, told[2];
    int class = MPI_SUCCESS;
    switch (call->pointer) {
    case AT:
        break;
    case OWN:
        *offset = file->pointer; /* moved when the bytes are */
        break;
    case SHARED:
        return shared_add(file, etypes, offset);
    case ORDERED:
        PMPI_Exscan(&etypes, &before, 1, MPI_INT64_T, MPI_SUM, file->comm);
        PMPI_Allreduce(&etypes, &all, 1, MPI_INT64_T, MPI_SUM, file->comm);
        if (!file->rank) {
            before = 0;
            class = shared_add(file, all, offset);
        }
        told[0] = class;
        told[1] = *offset;
        PMPI_Bcast(told, 2, MPI_INT64_T, 0, file->comm);
        *offset = told[1] + before;
        return (int)told[0];
    }
    return class;
}

/* A rank that is refused takes part in what all ranks do. */
static int without_bytes(struct file *file, const struct call *call, int class)
{
    int64_t offset = 0;
    if (call->pointer == ORDERED)
        place(file, call, 0, &offset);
    return class;
}

int access_begin(struct access *access, const struct call *call, int64_t offset, void *memory, int64_t count,
                 MPI_Datatype type)
{
    struct file *file = access->file;
    int64_t etype_size = file->view.etype_size;
    access->direction = call->direction;
    access->memory = memory;
    access->count = count;
    access->type = type;
    access->layout = layout_of(type, NATIVE_BYTES);
    if (!access->layout)
        return without_bytes(file, call, report(call->name, file->url, MPI_ERR_TYPE, "the type cannot be read"));
    access->bytes = count * layout_size(access->layout);
    if (file->view.representation == EXTERNAL_32) {
        struct layout *external = layout_of(type, EXTERNAL_32);
        access->bytes = external ? count * layout_size(external) : 0;
        layout_free(external);
    }
    if (etype_size ? access->bytes % etype_size : access->bytes) {
        access_end(access);
        return without_bytes(file, call,
                             report(call->name, file->url, MPI_ERR_IO, "the bytes are no multiple of the elementary type"));
    }
    int class = place(file, call, etype_size ? access->bytes / etype_size : 0, &offset);
    access->at = offset * etype_size;
    if (class)
        access_end(access);
    return class;
}

void access_end(struct access *access)
{
    layout_free(access->layout);
    access->layout = NULL;
}

/* ---- Between a buffer and the file ------------------------------------------------------------------------ */

/* A place in ranges of the file. */
struct cursor {
    const struct ranges *ranges;
    size_t nth;
    uint64_t within;
};

static ssize_t move_run(int fd, enum direction direction, char *buffer, size_t size, off_t at)
{
    size_t done = 0;
    while (done < size) {
        ssize_t moved = direction == READ ? pread(fd, buffer + done, size - done, at + done)
                                          : pwrite(fd, buffer + done, size - done, at + done);
        if (moved < 0 && errno == EINTR)
            continue;
        if (moved < 0)
            return -1;
        if (!moved)
            break;
        done += moved;
    }
    return done;
}

/* Moves bytes at the cursor. Returns how many: fewer at the end of the file; or -1. */
static int64_t move_at(struct cursor *cursor, int fd, enum direction direction, char *buffer, int64_t size)
{
    int64_t done = 0;
    while (done < size && cursor->nth < cursor->ranges->count) {
        const struct godwit_range *range = &cursor->ranges->each[cursor->nth];
        int64_t left = range->end - range->start - cursor->within;
        int64_t run = left < size - done ? left : size - done;
        ssize_t moved = move_run(fd, direction, buffer + done, run, range->start + cursor->within);
        if (moved < 0)
            return -1;
        done += moved;
        cursor->within += moved;
        if (moved < run)
            return done;
        if (run == left) {
            cursor->nth++;
            cursor->within = 0;
        }
    }
    return done;
}

/* ---- Between memory and a buffer -------------------------------------------------------------------------- */

struct packing {
    char *memory, *buffer;
    enum direction direction;
};

static int pack_run(void *context, int64_t at, int64_t size)
{
    struct packing *packing = context;
    if (packing->direction == WRITE)
        memcpy(packing->buffer, packing->memory + at, size);
    else
        memcpy(packing->memory + at, packing->buffer, size);
    packing->buffer += size;
    return 0;
}

static void pack(const struct access *access, char *buffer, int64_t from, int64_t to)
{
    struct packing packing = {access->memory, buffer, access->direction};
    layout_walk(access->layout, 0, from, to, pack_run, &packing);
}

/* ---- Between memory and the file -------------------------------------------------------------------------- */

static int report_local(const struct access *access)
{
    int error = errno;
    const char *wanted = access->direction == READ ? "read" : "write";
    char why[256];
    snprintf(why, sizeof why, "its local file failed: %s", strerror(error));
    return report(wanted, access->file->url, error == ENOSPC ? MPI_ERR_NO_SPACE : MPI_ERR_IO, why);
}

/* Moves the bytes of ranges, which begin `from` bytes behind the begin of the data. */
static int move_ranges(const struct access *access, const struct ranges *ranges, int64_t from, int64_t *moved)
{
    struct cursor cursor = {.ranges = ranges};
    int fd = access->file->fd, class = MPI_SUCCESS;
    int64_t start, size = ranges->bytes;
    *moved = 0;
    if (layout_is_dense(access->layout, access->count, &start)) {
        *moved = move_at(&cursor, fd, access->direction, access->memory + start + from, size);
        return *moved < 0 ? report_local(access) : MPI_SUCCESS;
    }
    int64_t room = size < STAGED_BYTES ? size : STAGED_BYTES;
    char *buffer = malloc(room ? room : 1);
    if (!buffer)
        return report(access->direction == READ ? "read" : "write", access->file->url, MPI_ERR_NO_MEM, "no memory");
    while (*moved < size) {
        int64_t part = size - *moved < room ? size - *moved : room, at = from + *moved, done;
        if (access->direction == WRITE)
            pack(access, buffer, at, at + part);
        done = move_at(&cursor, fd, access->direction, buffer, part);
        if (done < 0) {
            class = report_local(access);
            break;
        }
        if (access->direction == READ)
            pack(access, buffer, at, at + done);
        *moved += done;
        if (done < part)
            break;
    }
    free(buffer);
    return class;
}

static int move_native(const struct access *access, int64_t *moved)
{
    struct file *file = access->file;
    const char *wanted = access->direction == READ ? "read" : "write";
    int class = MPI_SUCCESS;
    *moved = 0;
    while (!class && *moved < access->bytes) {
        struct ranges ranges = {0};
        int64_t done = 0;
        view_ranges(&file->view, access->at + *moved, access->at + access->bytes, &ranges);
        if (ranges.is_broken)
            class = report(wanted, file->url, MPI_ERR_NO_MEM, "no memory");
        else if (ranges.count && (access->direction == READ ? godwit_ensure(file->fd, ranges.each, ranges.count)
                                                            : godwit_grant(file->shared, ranges.each, ranges.count)))
            class = report_grid();
        else
            class = move_ranges(access, &ranges, *moved, &done);
        if (!class && access->direction == WRITE && done && godwit_wrote(file->shared, ranges.each, ranges.count))
            class = report_grid();
        file->wrote_begin |= access->direction == WRITE && done && !ranges.each->start;
        free(ranges.each);
        *moved += done;
        if (done < ranges.bytes || !done)
            break; /* the end of the file, or a view without bytes */
    }
    return class;
}

/* Has the bytes of the file in a buffer on their way. */
static int move_external(const struct access *access, int64_t *moved)
{
    struct layout *bytes = layout_of(MPI_BYTE, NATIVE_BYTES);
    char *buffer = malloc(access->bytes ? access->bytes : 1);
    int64_t size = access->count ? access->bytes / access->count : 0, done = 0;
    int class = bytes && buffer ? MPI_SUCCESS : MPI_ERR_NO_MEM;
    struct access raw = {.file = access->file,
                         .direction = access->direction,
                         .at = access->at,
                         .bytes = access->bytes,
                         .memory = buffer,
                         .count = access->bytes,
                         .layout = bytes};
    if (!class && access->direction == WRITE)
        class = convert(access, buffer, size, access->count);
    if (!class)
        class = move_native(&raw, &done);
    int64_t whole = size ? done / size : 0;
    if (!class && access->direction == READ)
        class = convert(access, buffer, size, whole);
    *moved = whole * layout_size(access->layout);
    free(buffer);
    layout_free(bytes);
    return class;
}

static int move(const struct access *access, int64_t *moved)
{
    return (access->file->view.representation == EXTERNAL_32 ? move_external : move_native)(access, moved);
}

/* In atomic mode others see all of an access or nothing: also those on other machines. */
static int move_atomic(const struct access *access, int64_t *moved)
{
    struct file *file = access->file;
    int class = lock_file(file), unlocked;
    if (class)
        return class;
    if (file->nodes > 1 && godwit_sync(file->shared, GODWIT_SYNC_CHANGED) < 0)
        class = report_grid();
    if (!class)
        class = move(access, moved);
    if (!class && file->nodes > 1 && access->direction == WRITE && godwit_sync(file->shared, 0) < 0)
        class = report_grid();
    unlocked = unlock_file(file);
    return class ? class : unlocked;
}

int access_move(struct access *access, int64_t *moved)
{
    struct file *file = access->file;
    int class = (file->is_atomic ? move_atomic : move)(access, moved);
    __atomic_fetch_add(access->direction == READ ? &file->bytes_read : &file->bytes_written, *moved, __ATOMIC_RELAXED);
    return class;
}

void set_status(MPI_Status *status, int64_t moved)
{
    if (status == MPI_STATUS_IGNORE)
        return;
    PMPI_Status_set_elements_x(status, MPI_BYTE, moved);
    PMPI_Status_set_cancelled(status, 0);
}
