/* layout.c: reads what a datatype was made of, and walks over its bytes. It asks the MPI for contents alone: what
 * MPICH and Open MPI say of byte offsets in nested types is wrong for some. */
#include "layout.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum kind { RUN, ROW, LIST };

/* Bytes from 0 on; or `count` times `each`, `stride` bytes apart; or places. */
struct node {
    enum kind kind;
    int64_t size; /* bytes of data */
    int64_t count, stride;
    const struct node *each;
    struct place *places;
    struct node *next; /* of those that are freed together */
};

/* A part of a list. */
struct place {
    int64_t at;
    int64_t before; /* bytes of data in earlier places */
    int64_t size;
    const struct node *what; /* NULL: a run */
};

/* A node with the bounds of the type that it stands for. */
struct shape {
    const struct node *node;
    int64_t lower, upper;
};

struct layout {
    struct shape shape;
    struct node *nodes;
    enum representation representation;
    int is_broken; /* no memory, or an unknown constructor */
};

static const struct node nothing = {.kind = RUN};

/* ---- Nodes ---------------------------------------------------------------------------------------------- */

static struct node *new_node(struct layout *layout, enum kind kind)
{
    struct node *node = calloc(1, sizeof *node);
    if (!node) {
        layout->is_broken = 1;
        return NULL;
    }
    node->kind = kind;
    node->next = layout->nodes;
    return layout->nodes = node;
}

static const struct node *run(struct layout *layout, int64_t size)
{
    struct node *node = size > 0 ? new_node(layout, RUN) : NULL;
    if (!node)
        return &nothing;
    node->size = size;
    return node;
}

/* A list whose places are still added. */
struct list {
    struct place *places;
    int64_t count, room, size;
};

static void add(struct layout *layout, struct list *list, int64_t at, const struct node *what)
{
    struct place *last = list->count ? &list->places[list->count - 1] : NULL;
    if (!what->size)
        return;
    if (what->kind == LIST && what->count == 1) {
        at += what->places->at;
        what = what->places->what ? what->places->what : run(layout, what->size);
    }
    if (last && !last->what && what->kind == RUN && last->at + last->size == at) {
        last->size += what->size;
        list->size += what->size;
        return;
    }
    if (list->count == list->room) {
        int64_t room = list->room ? list->room * 2 : 4;
        struct place *places = realloc(list->places, room * sizeof *places);
        if (!places) {
            layout->is_broken = 1;
            return;
        }
        list->places = places;
        list->room = room;
    }
    list->places[list->count++] = (struct place){at, list->size, what->size, what->kind == RUN ? NULL : what};
    list->size += what->size;
}

static const struct node *finish(struct layout *layout, struct list *list)
{
    struct node *node;
    if (list->count == 1 && !list->places->at && list->places->what) {
        const struct node *what = list->places->what;
        free(list->places);
        return what;
    }
    if (list->count == 1 && !list->places->at) {
        free(list->places);
        return run(layout, list->size);
    }
    node = list->count ? new_node(layout, LIST) : NULL;
    if (!node) {
        free(list->places);
        return &nothing;
    }
    node->places = list->places;
    node->count = list->count;
    node->size = list->size;
    return node;
}

static const struct node *moved(struct layout *layout, int64_t at, const struct node *what)
{
    struct list list = {0};
    add(layout, &list, at, what);
    return finish(layout, &list);
}

static const struct node *row(struct layout *layout, int64_t count, int64_t stride, const struct node *each)
{
    struct node *node;
    if (count <= 0 || !each->size)
        return &nothing;
    if (count == 1)
        return each;
    if (each->kind == RUN && each->size == stride)
        return run(layout, count * stride);
    if (each->kind == LIST && each->count == 1) {
        const struct node *what = each->places->what ? each->places->what : run(layout, each->size);
        return moved(layout, each->places->at, row(layout, count, stride, what));
    }
    node = new_node(layout, ROW);
    if (!node)
        return &nothing;
    if (each->kind == ROW && each->count * each->stride == stride) {
        count *= each->count;
        stride = each->stride;
        each = each->each;
    }
    node->count = count;
    node->stride = stride;
    node->each = each;
    node->size = count * each->size;
    return node;
}

/* ---- Contents of datatypes -------------------------------------------------------------------------------- */

/* The arguments of a constructor in the order of MPI_Type_get_contents: integers, then addresses. Types that were made
 * with large counts have both among the counts. */
struct contents {
    int combiner;
    int64_t *numbers;
    MPI_Datatype *types;
    int64_t type_count;
};

static int is_named(int combiner)
{
    return combiner == MPI_COMBINER_NAMED || combiner == MPI_COMBINER_F90_REAL ||
           combiner == MPI_COMBINER_F90_COMPLEX || combiner == MPI_COMBINER_F90_INTEGER;
}

static void free_contents(struct contents *contents)
{
    for (int64_t i = 0; contents->types && i < contents->type_count; i++) {
        int integers, addresses, types, combiner = MPI_COMBINER_NAMED;
        PMPI_Type_get_envelope(contents->types[i], &integers, &addresses, &types, &combiner);
        if (!is_named(combiner))
            PMPI_Type_free(&contents->types[i]);
    }
    free(contents->types);
    free(contents->numbers);
}

#if MPI_VERSION >= 4
typedef MPI_Count number;
#else
typedef int number;
#endif

static int read_contents(MPI_Datatype type, struct contents *contents)
{
    number integers = 0, addresses = 0, counts = 0, types = 0;
    int done = 0;
    memset(contents, 0, sizeof *contents);
#if MPI_VERSION >= 4
    if (PMPI_Type_get_envelope_c(type, &integers, &addresses, &counts, &types, &contents->combiner))
        return -1;
#else
    if (PMPI_Type_get_envelope(type, &integers, &addresses, &types, &contents->combiner))
        return -1;
#endif
    if (is_named(contents->combiner))
        return 0;
    int *integer = calloc(integers + 1, sizeof *integer);
    MPI_Aint *address = calloc(addresses + 1, sizeof *address);
    MPI_Count *count = calloc(counts + 1, sizeof *count);
    contents->numbers = calloc(integers + addresses + counts + 1, sizeof *contents->numbers);
    contents->types = calloc(types + 1, sizeof *contents->types);
    if (integer && address && count && contents->numbers && contents->types) {
#if MPI_VERSION >= 4
        done = !PMPI_Type_get_contents_c(type, integers, addresses, counts, types, integer, address, count,
                                         contents->types);
#else
        done = !PMPI_Type_get_contents(type, integers, addresses, types, integer, address, contents->types);
#endif
    }
    if (done) {
        int64_t *to = contents->numbers;
        /* Only arrays have integers beside counts: before them, and the order of the dimensions behind them. */
        int64_t before = counts && contents->combiner == MPI_COMBINER_SUBARRAY ? 1
                         : counts && contents->combiner == MPI_COMBINER_DARRAY ? 3
                         : counts                                              ? 0
                                                                               : integers;
        contents->type_count = types;
        for (int64_t i = 0; i < before; i++)
            *to++ = integer[i];
        for (int64_t i = 0; i < counts; i++)
            *to++ = count[i];
        for (int64_t i = before; i < integers; i++)
            *to++ = integer[i];
        for (int64_t i = 0; i < addresses; i++)
            *to++ = address[i];
    }
    free(integer);
    free(address);
    free(count);
    if (!done)
        free_contents(contents);
    return done ? 0 : -1;
}

/* ---- From contents to shapes ------------------------------------------------------------------------------ */

/* A pair of a value and an index, which has a gap between them in memory. */
struct pair {
    MPI_Datatype type, first;
    int64_t second_at;
};

struct short_int { short value; int index; };
struct long_int { long value; int index; };
struct double_int { double value; int index; };
struct long_double_int { long double value; int index; };

static struct shape named(struct layout *layout, MPI_Datatype type)
{
    const struct pair pairs[] = {
        {MPI_SHORT_INT, MPI_SHORT, offsetof(struct short_int, index)},
        {MPI_LONG_INT, MPI_LONG, offsetof(struct long_int, index)},
        {MPI_DOUBLE_INT, MPI_DOUBLE, offsetof(struct double_int, index)},
        {MPI_LONG_DOUBLE_INT, MPI_LONG_DOUBLE, offsetof(struct long_double_int, index)},
    };
    MPI_Count size = 0;
    MPI_Aint lower = 0, extent = 0;
    if (layout->representation == EXTERNAL_32) {
        MPI_Aint external = 0;
        if (PMPI_Pack_external_size("external32", 1, type, &external))
            layout->is_broken = 1;
        return (struct shape){run(layout, external), 0, external};
    }
    PMPI_Type_get_extent(type, &lower, &extent);
    PMPI_Type_size_x(type, &size);
    for (size_t i = 0; size != extent && i < sizeof pairs / sizeof *pairs; i++) {
        MPI_Count first = 0;
        struct list list = {0};
        if (type != pairs[i].type)
            continue;
        PMPI_Type_size_x(pairs[i].first, &first);
        add(layout, &list, 0, run(layout, first));
        add(layout, &list, pairs[i].second_at, run(layout, size - first));
        return (struct shape){finish(layout, &list), lower, lower + extent};
    }
    return (struct shape){run(layout, size), lower, lower + extent};
}

/* A shape that is put together of others: its bounds are the least that hold theirs. */
struct builder {
    struct layout *layout;
    struct list list;
    int64_t lower, upper;
    int is_bounded;
};

/* Adds `count` instances, `stride` bytes apart. */
static void put(struct builder *builder, int64_t at, int64_t count, int64_t stride, const struct shape *shape)
{
    int64_t last = at + (count - 1) * stride;
    int64_t lower = (last < at ? last : at) + shape->lower, upper = (last > at ? last : at) + shape->upper;
    if (count <= 0)
        return;
    if (!builder->is_bounded || lower < builder->lower)
        builder->lower = lower;
    if (!builder->is_bounded || upper > builder->upper)
        builder->upper = upper;
    builder->is_bounded = 1;
    add(builder->layout, &builder->list, at, row(builder->layout, count, stride, shape->node));
}

static struct shape built(struct builder *builder)
{
    return (struct shape){finish(builder->layout, &builder->list), builder->lower, builder->upper};
}

static struct shape blocks(struct layout *layout, int64_t count, int64_t length, int64_t stride, const struct shape *of)
{
    struct builder one = {.layout = layout}, all = {.layout = layout};
    put(&one, 0, length, of->upper - of->lower, of);
    struct shape block = built(&one);
    put(&all, 0, length > 0 ? count : 0, stride, &block);
    return built(&all);
}

/* One dimension of an array: `start` is where its elements are, of `all`. */
static struct shape dimension(struct layout *layout, int64_t start, int64_t count, int64_t all, int64_t stride,
                              const struct shape *of)
{
    const struct node *node = row(layout, count, stride, of->node);
    return (struct shape){moved(layout, start * stride, node), 0, all * stride};
}

static struct shape subarray(struct layout *layout, const int64_t *numbers, struct shape shape)
{
    int64_t count = numbers[0], stride = shape.upper - shape.lower;
    const int64_t *sizes = numbers + 1, *parts = sizes + count, *starts = parts + count;
    int is_c = starts[count] == MPI_ORDER_C;
    for (int64_t i = 0; i < count; i++) {
        int64_t d = is_c ? count - 1 - i : i;
        shape = dimension(layout, starts[d], parts[d], sizes[d], stride, &shape);
        stride *= sizes[d];
    }
    return shape;
}

/* Elements of one dimension that are dealt out in blocks to `of` processes. */
static struct shape dealt(struct layout *layout, int64_t block, int64_t all, int64_t nth, int64_t of, int64_t stride,
                          const struct shape *each)
{
    int64_t first = nth * block, step = block * of, whole = 0;
    struct list list = {0};
    if (first + block <= all)
        whole = (all - first - block) / step + 1;
    const struct node *one = row(layout, block, stride, each->node);
    add(layout, &list, first * stride, row(layout, whole, step * stride, one));
    int64_t rest = first + whole * step;
    if (rest < all)
        add(layout, &list, rest * stride, row(layout, all - rest, stride, each->node));
    return (struct shape){finish(layout, &list), 0, all * stride};
}

static struct shape darray(struct layout *layout, const int64_t *numbers, struct shape shape)
{
    int64_t rank = numbers[1], count = numbers[2], stride = shape.upper - shape.lower;
    const int64_t *sizes = numbers + 3, *ways = sizes + count, *arguments = ways + count, *grid = arguments + count;
    int is_c = grid[count] == MPI_ORDER_C;
    int64_t *place = calloc(count + 1, sizeof *place);
    if (!place) {
        layout->is_broken = 1;
        return shape;
    }
    for (int64_t d = count - 1; d >= 0; d--) {
        place[d] = rank % grid[d];
        rank /= grid[d];
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t d = is_c ? count - 1 - i : i, block = arguments[d];
        if (ways[d] == MPI_DISTRIBUTE_NONE || grid[d] == 1)
            shape = dimension(layout, 0, sizes[d], sizes[d], stride, &shape);
        else {
            if (block == MPI_DISTRIBUTE_DFLT_DARG)
                block = ways[d] == MPI_DISTRIBUTE_BLOCK ? (sizes[d] + grid[d] - 1) / grid[d] : 1;
            shape = dealt(layout, block, sizes[d], place[d], grid[d], stride, &shape);
        }
        stride *= sizes[d];
    }
    free(place);
    return shape;
}

static struct shape shape_of(struct layout *, MPI_Datatype);

/* The constructors that have blocks at displacements. */
static struct shape scattered(struct layout *layout, const struct contents *contents)
{
    int combiner = contents->combiner;
    int is_struct = combiner == MPI_COMBINER_STRUCT;
    int is_equal = combiner == MPI_COMBINER_INDEXED_BLOCK || combiner == MPI_COMBINER_HINDEXED_BLOCK;
    int is_counted = combiner == MPI_COMBINER_INDEXED || combiner == MPI_COMBINER_INDEXED_BLOCK;
    int64_t count = contents->numbers[0];
    const int64_t *lengths = contents->numbers + 1, *displacements = lengths + (is_equal ? 1 : count);
    struct builder builder = {.layout = layout};
    struct shape shape = {&nothing, 0, 0};
    if (!is_struct)
        shape = shape_of(layout, contents->types[0]);
    for (int64_t i = 0; i < count; i++) {
        if (is_struct)
            shape = shape_of(layout, contents->types[i]);
        int64_t extent = shape.upper - shape.lower;
        put(&builder, displacements[i] * (is_counted ? extent : 1), lengths[is_equal ? 0 : i], extent, &shape);
    }
    return built(&builder);
}

static struct shape constructed(struct layout *layout, const struct contents *contents)
{
    const int64_t *numbers = contents->numbers;
    struct shape shape;
    switch (contents->combiner) {
    case MPI_COMBINER_INDEXED:
    case MPI_COMBINER_HINDEXED:
    case MPI_COMBINER_INDEXED_BLOCK:
    case MPI_COMBINER_HINDEXED_BLOCK:
    case MPI_COMBINER_STRUCT:
        return scattered(layout, contents);
    default:
        shape = shape_of(layout, contents->types[0]);
    }
    int64_t extent = shape.upper - shape.lower;
    switch (contents->combiner) {
    case MPI_COMBINER_DUP:
        return shape;
    case MPI_COMBINER_RESIZED:
        return (struct shape){shape.node, numbers[0], numbers[0] + numbers[1]};
    case MPI_COMBINER_CONTIGUOUS:
        return blocks(layout, 1, numbers[0], 0, &shape);
    case MPI_COMBINER_VECTOR:
        return blocks(layout, numbers[0], numbers[1], numbers[2] * extent, &shape);
    case MPI_COMBINER_HVECTOR:
        return blocks(layout, numbers[0], numbers[1], numbers[2], &shape);
    case MPI_COMBINER_SUBARRAY:
        return subarray(layout, numbers, shape);
    case MPI_COMBINER_DARRAY:
        return darray(layout, numbers, shape);
    default:
        layout->is_broken = 1;
        return shape;
    }
}

static struct shape shape_of(struct layout *layout, MPI_Datatype type)
{
    struct shape shape = {&nothing, 0, 0};
    struct contents contents;
    if (layout->is_broken || read_contents(type, &contents)) {
        layout->is_broken = 1;
        return shape;
    }
    if (is_named(contents.combiner))
        return named(layout, type);
    shape = constructed(layout, &contents);
    free_contents(&contents);
    if (layout->representation == NATIVE_BYTES) {
        /* The MPI knows of paddings at the end that its rules for structs add. */
        MPI_Aint lower, extent;
        PMPI_Type_get_extent(type, &lower, &extent);
        shape.lower = lower;
        shape.upper = lower + extent;
    }
    return shape;
}

struct layout *layout_of(MPI_Datatype type, enum representation representation)
{
    struct layout *layout = calloc(1, sizeof *layout);
    if (!layout)
        return NULL;
    layout->representation = representation;
    layout->shape = shape_of(layout, type);
    if (!layout->is_broken)
        return layout;
    layout_free(layout);
    return NULL;
}

void layout_free(struct layout *layout)
{
    struct node *next;
    for (struct node *node = layout ? layout->nodes : NULL; node; node = next) {
        next = node->next;
        if (node->kind == LIST)
            free(node->places);
        free(node);
    }
    free(layout);
}

/* ---- Walks ------------------------------------------------------------------------------------------------ */

int64_t layout_size(const struct layout *layout)
{
    return layout->shape.node->size;
}

int64_t layout_extent(const struct layout *layout)
{
    return layout->shape.upper - layout->shape.lower;
}

int layout_is_dense(const struct layout *layout, int64_t count, int64_t *start)
{
    const struct node *node = layout->shape.node;
    int is_placed = node->kind == LIST && node->count == 1 && !node->places->what;
    *start = is_placed ? node->places->at : 0;
    return (node->kind == RUN || is_placed) && (count <= 1 || node->size == layout_extent(layout));
}

static int walk_node(const struct node *, int64_t base, int64_t from, int64_t to, layout_visit, void *context);

static int walk_row(const struct node *node, int64_t base, int64_t from, int64_t to, layout_visit visit, void *context)
{
    int64_t size = node->each->size;
    for (int64_t nth = from / size; nth * size < to; nth++) {
        int64_t begin = nth * size, first = from > begin ? from - begin : 0;
        int64_t last = to - begin < size ? to - begin : size;
        int ended = walk_node(node->each, base + nth * node->stride, first, last, visit, context);
        if (ended)
            return ended;
    }
    return 0;
}

static int walk_list(const struct node *node, int64_t base, int64_t from, int64_t to, layout_visit visit, void *context)
{
    int64_t low = 0, high = node->count - 1;
    while (low < high) {
        int64_t middle = (low + high + 1) / 2;
        if (node->places[middle].before <= from)
            low = middle;
        else
            high = middle - 1;
    }
    for (; low < node->count && node->places[low].before < to; low++) {
        const struct place *place = &node->places[low];
        int64_t first = from > place->before ? from - place->before : 0;
        int64_t last = to - place->before < place->size ? to - place->before : place->size;
        int ended = place->what ? walk_node(place->what, base + place->at, first, last, visit, context)
                                : visit(context, base + place->at + first, last - first);
        if (ended)
            return ended;
    }
    return 0;
}

static int walk_node(const struct node *node, int64_t base, int64_t from, int64_t to, layout_visit visit, void *context)
{
    if (from >= to)
        return 0;
    if (node->kind == RUN)
        return visit(context, base + from, to - from);
    return (node->kind == ROW ? walk_row : walk_list)(node, base, from, to, visit, context);
}

int layout_walk(const struct layout *layout, int64_t base, int64_t from, int64_t to, layout_visit visit, void *context)
{
    int64_t size = layout_size(layout);
    if (!size)
        return 0;
    for (int64_t nth = from / size; nth * size < to; nth++) {
        int64_t begin = nth * size, first = from > begin ? from - begin : 0;
        int64_t last = to - begin < size ? to - begin : size;
        int64_t at = base + nth * layout_extent(layout);
        int ended = walk_node(layout->shape.node, at, first, last, visit, context);
        if (ended)
            return ended;
    }
    return 0;
}

/* How far a walk has come that looks for displacements that decrease or overlap. */
struct order {
    int64_t begun, ended;
    int writes;
    const char *why;
};

static int check_order(void *context, int64_t at, int64_t size)
{
    struct order *order = context;
    if (at < 0)
        order->why = "the file type has a negative displacement";
    else if (at < order->begun)
        order->why = "the displacements of the file type decrease";
    else if (order->writes && at < order->ended)
        order->why = "the file type has bytes twice, and the file is opened to be written";
    order->begun = at;
    order->ended = at + size;
    return order->why != NULL;
}

const char *layout_unfit_for_view(const struct layout *layout, int writes)
{
    struct order order = {.writes = writes};
    walk_node(layout->shape.node, 0, 0, layout_size(layout), check_order, &order);
    return order.why;
}
