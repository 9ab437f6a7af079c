/* calls.c: the functions that move bytes, all from one table. */
#include "file.h"

/* ---- The forms of calls ----------------------------------------------------------------------------------- */

/* Returns an error class if the arguments of a call are wrong. */
static int unfit(const struct file *file, const struct call *call, MPI_Offset offset, MPI_Count count, MPI_Datatype type)
{
    if (count < 0)
        return report(call->name, file->url, MPI_ERR_COUNT, "the count is negative");
    if (type == MPI_DATATYPE_NULL)
        return report(call->name, file->url, MPI_ERR_TYPE, "MPI_DATATYPE_NULL has no bytes");
    if (offset < 0)
        return report(call->name, file->url, MPI_ERR_ARG, "the offset is negative");
    if (call->direction == WRITE && file->mode & MPI_MODE_RDONLY)
        return report(call->name, file->url, MPI_ERR_READ_ONLY, "it is opened to be read");
    if (call->direction == READ && file->mode & MPI_MODE_WRONLY)
        return report(call->name, file->url, MPI_ERR_ACCESS, "it is opened to be written");
    if (call->pointer <= OWN && file->mode & MPI_MODE_SEQUENTIAL)
        return report(call->name, file->url, MPI_ERR_UNSUPPORTED_OPERATION,
                      "a sequential file has a shared pointer alone");
    return MPI_SUCCESS;
}

/* Moves the bytes of a call. The own pointer stays locked meanwhile: reads move it by what there was. */
static int moved_by(struct file *file, const struct call *call, int64_t offset, void *memory, int64_t count,
                    MPI_Datatype type, int64_t *moved)
{
    struct access access = {.file = file};
    int is_own = call->pointer == OWN;
    *moved = 0;
    if (is_own)
        pthread_mutex_lock(&file->lock);
    int class = access_begin(&access, call, offset, memory, count, type);
    if (!class) {
        int64_t size = layout_size(access.layout), bytes;
        class = access_move(&access, moved);
        bytes = size && count ? *moved / size * (access.bytes / count) + *moved % size : 0;
        if (is_own && file->view.etype_size)
            file->pointer += bytes / file->view.etype_size;
        access_end(&access);
    }
    if (is_own)
        pthread_mutex_unlock(&file->lock);
    return class;
}

static int blocking(struct file *file, const struct call *call, int64_t offset, void *memory, int64_t count,
                    MPI_Datatype type, MPI_Status *status)
{
    int64_t moved;
    int class = moved_by(file, call, offset, memory, count, type, &moved);
    set_status(status, moved);
    return raise_on(file, class);
}

/* Begins a read that may wait for its bytes, or does what need not wait. */
static int begun(struct file *file, const struct call *call, int64_t offset, void *memory, int64_t count,
                 MPI_Datatype type, struct reading **reading, int64_t *moved)
{
    struct access access = {.file = file};
    *reading = NULL;
    if (call->direction == WRITE || file->is_atomic)
        return moved_by(file, call, offset, memory, count, type, moved);
    if (call->pointer == OWN)
        pthread_mutex_lock(&file->lock);
    int class = access_begin(&access, call, offset, memory, count, type);
    if (!class && call->pointer == OWN && file->view.etype_size)
        file->pointer += access.bytes / file->view.etype_size;
    if (call->pointer == OWN)
        pthread_mutex_unlock(&file->lock);
    if (class)
        return class;
    *reading = reading_begin(&access);
    if (!*reading) {
        class = access_move(&access, moved);
        access_end(&access);
    }
    return class;
}

static int nonblocking(struct file *file, const struct call *call, int64_t offset, void *memory, int64_t count,
                       MPI_Datatype type, MPI_Request *request)
{
    struct reading *reading;
    int64_t moved = 0;
    int class = begun(file, call, offset, memory, count, type, &reading, &moved);
    if (class)
        return raise_on(file, class);
    return reading ? request_of_reading(reading, request) : request_of_done(moved, request);
}

static int split_begin(struct file *file, const struct call *call, int64_t offset, void *memory, int64_t count,
                       MPI_Datatype type)
{
    struct split *split = &file->split;
    if (split->call)
        return raise_on(file, report(call->name, file->url, MPI_ERR_IO, "another split collective call has not ended"));
    *split = (struct split){.call = call};
    split->class = begun(file, call, offset, memory, count, type, &split->reading, &split->moved);
    return MPI_SUCCESS; /* the end says how it went */
}

static int split_end(struct file *file, const struct call *call, MPI_Status *status)
{
    struct split split = file->split;
    if (!split.call)
        return raise_on(file, report(call->name, file->url, MPI_ERR_IO, "no split collective call has begun"));
    if (split.call->pointer != call->pointer || split.call->direction != call->direction)
        return raise_on(file, report(call->name, file->url, MPI_ERR_IO, "another split collective call has begun"));
    file->split.call = NULL;
    if (split.reading)
        split.class = reading_end(split.reading, &split.moved);
    set_status(status, split.moved);
    return raise_on(file, split.class);
}

/* ---- The table -------------------------------------------------------------------------------------------- */

#define CALLS_OF(move, WAY)                                                                                            \
    CALL(move##_at, AT, WAY, blocking)                                                                                 \
    CALL(move##_at_all, AT, WAY, blocking)                                                                             \
    CALL(i##move##_at, AT, WAY, nonblocking)                                                                           \
    CALL(i##move##_at_all, AT, WAY, nonblocking)                                                                       \
    CALL(move##_at_all_begin, AT, WAY, split_begin)                                                                    \
    CALL(move, OWN, WAY, blocking)                                                                                     \
    CALL(move##_all, OWN, WAY, blocking)                                                                               \
    CALL(i##move, OWN, WAY, nonblocking)                                                                               \
    CALL(i##move##_all, OWN, WAY, nonblocking)                                                                         \
    CALL(move##_all_begin, OWN, WAY, split_begin)                                                                      \
    CALL(move##_shared, SHARED, WAY, blocking)                                                                         \
    CALL(i##move##_shared, SHARED, WAY, nonblocking)                                                                   \
    CALL(move##_ordered, ORDERED, WAY, blocking)                                                                       \
    CALL(move##_ordered_begin, ORDERED, WAY, split_begin)                                                              \
    END(move##_at_all_end, AT, WAY)                                                                                    \
    END(move##_all_end, OWN, WAY)                                                                                      \
    END(move##_ordered_end, ORDERED, WAY)

/* What the columns mean for the parameters, and for what is passed on. */
#define OFFSET_AT MPI_Offset offset,
#define OFFSET_OWN
#define OFFSET_SHARED
#define OFFSET_ORDERED
#define GIVEN_AT offset,
#define GIVEN_OWN
#define GIVEN_SHARED
#define GIVEN_ORDERED
#define FROM_AT offset
#define FROM_OWN 0
#define FROM_SHARED 0
#define FROM_ORDERED 0
#define MEMORY_READ void *
#define MEMORY_WRITE const void *
#define LAST_blocking , MPI_Status *last
#define LAST_nonblocking , MPI_Request *last
#define LAST_split_begin
#define GIVEN_blocking , last
#define GIVEN_nonblocking , last
#define GIVEN_split_begin

#define FUNCTION(name, NUMBER, POINTER, WAY, form)                                                                     \
    BOTH(File_##name, (MPI_File handle, OFFSET_##POINTER MEMORY_##WAY memory, NUMBER count,                            \
                       MPI_Datatype type LAST_##form))                                                                 \
    {                                                                                                                  \
        static const struct call call = {#name, POINTER, WAY};                                                         \
        struct file *file = file_of(handle);                                                                           \
        if (!file)                                                                                                     \
            return NATIVE(PMPI_File_##name)(handle, GIVEN_##POINTER memory, count, type GIVEN_##form);                 \
        int class = unfit(file, &call, FROM_##POINTER, count, type);                                                   \
        if (class)                                                                                                     \
            return stand_aside(file, &call, class);                                                                    \
        return form(file, &call, FROM_##POINTER, (void *)memory, count, type GIVEN_##form);                            \
    }

#if MPI_VERSION >= 4
#define CALL(name, POINTER, WAY, form)                                                                                 \
    FUNCTION(name, int, POINTER, WAY, form)                                                                            \
    FUNCTION(name##_c, MPI_Count, POINTER, WAY, form)
#else
#define CALL(name, POINTER, WAY, form) FUNCTION(name, int, POINTER, WAY, form)
#endif

#define END(name, POINTER, WAY)                                                                                        \
    BOTH(File_##name, (MPI_File handle, MEMORY_##WAY memory, MPI_Status *status))                                      \
    {                                                                                                                  \
        static const struct call call = {#name, POINTER, WAY};                                                         \
        struct file *file = file_of(handle);                                                                           \
        return file ? split_end(file, &call, status) : NATIVE(PMPI_File_##name)(handle, memory, status);               \
    }

/* A rank that is refused takes part in what all ranks do, without bytes. */
static int stand_aside(struct file *file, const struct call *call, int class)
{
    struct access access = {.file = file};
    if (call->pointer == ORDERED && !access_begin(&access, call, 0, NULL, 0, MPI_BYTE))
        access_end(&access);
    return raise_on(file, class);
}

CALLS_OF(read, READ)
CALLS_OF(write, WRITE)
