/* view.c: what a rank sees of a file, and where its pointers are. */
#include "file.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static int is_named(MPI_Datatype type)
{
    int integers, addresses, types, combiner;
    PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
    return combiner == MPI_COMBINER_NAMED;
}

/* A named type stays the one it is. */
static MPI_Datatype copy_of(MPI_Datatype type)
{
    MPI_Datatype copy = type;
    if (!is_named(type))
        PMPI_Type_dup(type, &copy);
    return copy;
}

static void forget(MPI_Datatype *type)
{
    if (*type != MPI_DATATYPE_NULL && !is_named(*type))
        PMPI_Type_free(type);
    *type = MPI_DATATYPE_NULL;
}

int view_begin(struct view *view)
{
    memset(view, 0, sizeof *view);
    view->etype = view->file_type = MPI_BYTE;
    view->etype_size = 1;
    view->layout = layout_of(MPI_BYTE, NATIVE_BYTES);
    strcpy(view->name, "native");
    return view->layout ? 0 : MPI_ERR_NO_MEM;
}

void view_end(struct view *view)
{
    layout_free(view->layout);
    forget(&view->etype);
    forget(&view->file_type);
}

static int add_range(void *context, int64_t at, int64_t size)
{
    struct ranges *ranges = context;
    if (ranges->count && ranges->each[ranges->count - 1].end == (uint64_t)at) {
        ranges->each[ranges->count - 1].end += size;
        ranges->bytes += size;
        return 0;
    }
    if (ranges->count == RANGES_MOST)
        return 1;
    if (ranges->count == ranges->room) {
        size_t room = ranges->room ? ranges->room * 2 : 16;
        struct godwit_range *each = realloc(ranges->each, room * sizeof *each);
        if (!each)
            return ranges->is_broken = 1;
        ranges->each = each;
        ranges->room = room;
    }
    ranges->each[ranges->count++] = (struct godwit_range){at, at + size};
    ranges->bytes += size;
    return 0;
}

void view_ranges(const struct view *view, int64_t from, int64_t to, struct ranges *ranges)
{
    int64_t start;
    if (!layout_size(view->layout))
        return;
    /* Without gaps the whole is one range, however small the type is. */
    if (layout_is_dense(view->layout, 2, &start) && from < to)
        add_range(ranges, view->displacement + start + from, to - from);
    else
        layout_walk(view->layout, view->displacement, from, to, add_range, ranges);
}

/* Counts the bytes of data that lie before `limit`. */
struct before {
    int64_t limit, bytes;
};

static int count_before(void *context, int64_t at, int64_t size)
{
    struct before *before = context;
    if (at < before->limit)
        before->bytes += at + size < before->limit ? size : before->limit - at;
    return 0;
}

int64_t view_end_of_file(const struct file *file)
{
    const struct view *view = &file->view;
    int64_t extent = layout_extent(view->layout), size = layout_size(view->layout);
    int64_t limit = file_size(file) - view->displacement;
    if (limit <= 0 || extent <= 0 || !view->etype_size)
        return 0;
    struct before before = {.limit = limit % extent};
    layout_walk(view->layout, 0, 0, size, count_before, &before);
    int64_t bytes = limit / extent * size + before.bytes;
    return (bytes + view->etype_size - 1) / view->etype_size;
}

static int first_at(void *context, int64_t at, int64_t size)
{
    (void)size;
    *(int64_t *)context = at;
    return 1;
}

static int64_t byte_offset(const struct view *view, int64_t etypes)
{
    int64_t at = view->displacement, from = etypes * view->etype_size;
    layout_walk(view->layout, view->displacement, from, from + 1, first_at, &at);
    return at;
}

/* ---- Set and get ------------------------------------------------------------------------------------------ */

static int is_word(const char *text, const char *word)
{
    return text && !strcasecmp(text, word);
}

/* Returns an error class if the arguments are wrong. */
static int unfit(const struct file *file, MPI_Offset displacement, MPI_Datatype etype, MPI_Datatype file_type,
                 const char *name)
{
    const char *wanted = "set the view of";
    MPI_Count size = 0, file_size = 0;
    int is_sequential = (file->mode & MPI_MODE_SEQUENTIAL) != 0;
    if (etype == MPI_DATATYPE_NULL || file_type == MPI_DATATYPE_NULL)
        return report(wanted, file->url, MPI_ERR_TYPE, "MPI_DATATYPE_NULL is no type of a view");
    if (displacement < 0 && displacement != MPI_DISPLACEMENT_CURRENT)
        return report(wanted, file->url, MPI_ERR_ARG, "the displacement is negative");
    if (is_sequential != (displacement == MPI_DISPLACEMENT_CURRENT))
        return report(wanted, file->url, MPI_ERR_ARG,
                      "MPI_DISPLACEMENT_CURRENT is for files of MPI_MODE_SEQUENTIAL, and they need it");
    if (!is_word(name, "native") && !is_word(name, "internal") && !is_word(name, "external32"))
        return report(wanted, file->url, MPI_ERR_UNSUPPORTED_DATAREP, "there is no such data representation");
    PMPI_Type_size_x(etype, &size);
    PMPI_Type_size_x(file_type, &file_size);
    if (size && file_size % size)
        return report(wanted, file->url, MPI_ERR_ARG, "the file type is not a multiple of the elementary type");
    return MPI_SUCCESS;
}

static int set_view(struct file *file, MPI_Offset displacement, MPI_Datatype etype, MPI_Datatype file_type,
                    const char *name)
{
    enum representation representation = is_word(name, "external32") ? EXTERNAL_32 : NATIVE_BYTES;
    struct layout *layout = layout_of(file_type, representation), *each = layout_of(etype, representation);
    const char *why = layout && each ? layout_unfit_for_view(layout, !(file->mode & MPI_MODE_RDONLY))
                                     : "the type cannot be read";
    if (why) {
        layout_free(layout);
        layout_free(each);
        return report("set the view of", file->url, MPI_ERR_IO, why);
    }
    struct view view = {
        .displacement = displacement,
        .etype_size = layout_size(each),
        .layout = layout,
        .etype = copy_of(etype),
        .file_type = copy_of(file_type),
        .representation = representation,
    };
    strncpy(view.name, name, sizeof view.name - 1);
    layout_free(each);
    view_end(&file->view);
    file->view = view;
    file->pointer = 0;
    return MPI_SUCCESS;
}

BOTH(File_set_view, (MPI_File handle, MPI_Offset displacement, MPI_Datatype etype, MPI_Datatype file_type,
                     const char *name, MPI_Info info))
{
    struct file *file = file_of(handle);
    int64_t shared = 0;
    int class = MPI_SUCCESS;
    if (!file)
        return NATIVE(PMPI_File_set_view)(handle, displacement, etype, file_type, name, info);
    /* All ranks read the shared pointer before one sets it. */
    if (file->mode & MPI_MODE_SEQUENTIAL)
        class = shared_add(file, 0, &shared);
    class = agree(file, class ? class : unfit(file, displacement, etype, file_type, name));
    if (!class) {
        if (displacement == MPI_DISPLACEMENT_CURRENT)
            displacement = byte_offset(&file->view, shared);
        class = set_view(file, displacement, etype, file_type, name);
    }
    if (!file->rank && !class)
        class = shared_set(file, 0);
    return raise_on(file, agree(file, class));
}

BOTH(File_get_view, (MPI_File handle, MPI_Offset *displacement, MPI_Datatype *etype, MPI_Datatype *file_type, char *name))
{
    struct file *file = file_of(handle);
    if (!file || !displacement || !etype || !file_type || !name)
        return NATIVE(PMPI_File_get_view)(handle, displacement, etype, file_type, name);
    *displacement = file->view.displacement;
    *etype = copy_of(file->view.etype);
    *file_type = copy_of(file->view.file_type);
    strcpy(name, file->view.name);
    return MPI_SUCCESS;
}

/* Returns the extent that a type has in the file. */
static int type_extent(const struct file *file, MPI_Datatype type, int64_t *extent)
{
    struct layout *layout = layout_of(type, file->view.representation);
    *extent = layout ? layout_extent(layout) : 0;
    layout_free(layout);
    return layout != NULL;
}

BOTH(File_get_type_extent, (MPI_File handle, MPI_Datatype type, MPI_Aint *extent))
{
    struct file *file = file_of(handle);
    int64_t told;
    if (!file || type == MPI_DATATYPE_NULL || !type_extent(file, type, &told))
        return NATIVE(PMPI_File_get_type_extent)(handle, type, extent);
    *extent = told;
    return MPI_SUCCESS;
}

#if MPI_VERSION >= 4
BOTH(File_get_type_extent_c, (MPI_File handle, MPI_Datatype type, MPI_Count *extent))
{
    struct file *file = file_of(handle);
    int64_t told;
    if (!file || type == MPI_DATATYPE_NULL || !type_extent(file, type, &told))
        return NATIVE(PMPI_File_get_type_extent_c)(handle, type, extent);
    *extent = told;
    return MPI_SUCCESS;
}
#endif

/* ---- Pointers --------------------------------------------------------------------------------------------- */

/* Returns an error class for a file that has no pointers of single ranks. */
static int unfit_for_pointer(const struct file *file, const char *wanted)
{
    if (file->mode & MPI_MODE_SEQUENTIAL)
        return report(wanted, file->url, MPI_ERR_UNSUPPORTED_OPERATION, "a sequential file has a shared pointer alone");
    return MPI_SUCCESS;
}

BOTH(File_get_byte_offset, (MPI_File handle, MPI_Offset offset, MPI_Offset *bytes))
{
    struct file *file = file_of(handle);
    int class = file ? unfit_for_pointer(file, "find an offset in") : MPI_SUCCESS;
    if (!file)
        return NATIVE(PMPI_File_get_byte_offset)(handle, offset, bytes);
    if (!class && offset < 0)
        class = report("find an offset in", file->url, MPI_ERR_ARG, "the offset is negative");
    if (!class)
        *bytes = byte_offset(&file->view, offset);
    return raise_on(file, class);
}

BOTH(File_get_position, (MPI_File handle, MPI_Offset *offset))
{
    struct file *file = file_of(handle);
    int class = file ? unfit_for_pointer(file, "find the position in") : MPI_SUCCESS;
    if (!file)
        return NATIVE(PMPI_File_get_position)(handle, offset);
    if (!class)
        *offset = file->pointer;
    return raise_on(file, class);
}

/* Returns an error class, or sets `to` to where a seek leads; `pointer` is where it is now. */
static int sought(const struct file *file, int64_t offset, int whence, int64_t pointer, int64_t *to)
{
    int64_t from = whence == MPI_SEEK_CUR ? pointer : whence == MPI_SEEK_END ? view_end_of_file(file) : 0;
    *to = from + offset;
    if (whence != MPI_SEEK_SET && whence != MPI_SEEK_CUR && whence != MPI_SEEK_END)
        return report("seek in", file->url, MPI_ERR_ARG, "there is no such whence");
    return *to < 0 ? report("seek in", file->url, MPI_ERR_ARG, "the offset is before the begin") : MPI_SUCCESS;
}

BOTH(File_seek, (MPI_File handle, MPI_Offset offset, int whence))
{
    struct file *file = file_of(handle);
    int class = file ? unfit_for_pointer(file, "seek in") : MPI_SUCCESS;
    int64_t to;
    if (!file)
        return NATIVE(PMPI_File_seek)(handle, offset, whence);
    pthread_mutex_lock(&file->lock);
    if (!class)
        class = sought(file, offset, whence, file->pointer, &to);
    if (!class)
        file->pointer = to;
    pthread_mutex_unlock(&file->lock);
    return raise_on(file, class);
}

BOTH(File_seek_shared, (MPI_File handle, MPI_Offset offset, int whence))
{
    struct file *file = file_of(handle);
    int64_t mine[4] = {offset, -offset, whence, -whence}, most[4], now = 0, to;
    int class = MPI_SUCCESS;
    if (!file)
        return NATIVE(PMPI_File_seek_shared)(handle, offset, whence);
    PMPI_Allreduce(mine, most, 4, MPI_INT64_T, MPI_MAX, file->comm);
    if (most[0] != -most[1] || most[2] != -most[3])
        return raise_on(file, report_once(file, "seek in", MPI_ERR_NOT_SAME, "the ranks give different offsets"));
    if (!file->rank) {
        class = shared_add(file, 0, &now);
        class = class ? class : sought(file, offset, whence, now, &to);
        class = class ? class : shared_set(file, to);
    }
    PMPI_Bcast(&class, 1, MPI_INT, 0, file->comm);
    return raise_on(file, class);
}

BOTH(File_get_position_shared, (MPI_File handle, MPI_Offset *offset))
{
    struct file *file = file_of(handle);
    int64_t shared = 0;
    if (!file)
        return NATIVE(PMPI_File_get_position_shared)(handle, offset);
    int class = shared_add(file, 0, &shared);
    *offset = shared;
    return raise_on(file, class);
}
