/* Compares layouts with MPI_Pack: random nested types, each packed by both; and parts of them, walked over by parts.
 * Arguments: the first seed, and how many. */
#include "../layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state;

static int64_t below(int64_t limit)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((state >> 33) % (uint64_t)limit);
}

static MPI_Datatype basic(void)
{
    const MPI_Datatype types[] = {MPI_BYTE, MPI_SHORT, MPI_INT, MPI_DOUBLE, MPI_SHORT_INT, MPI_DOUBLE_INT, MPI_FLOAT_INT,
                                  MPI_LONG_DOUBLE_INT, MPI_2INT, MPI_LONG_INT, MPI_CHAR};
    return types[below(sizeof types / sizeof *types)];
}

static MPI_Datatype random_type(int depth);

static void forget(MPI_Datatype type)
{
    int integers, addresses, types, combiner;
    MPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
    if (combiner != MPI_COMBINER_NAMED)
        MPI_Type_free(&type);
}

static MPI_Datatype array(MPI_Datatype of)
{
    int sizes[3], parts[3], starts[3], ways[3], arguments[3], grid[3], count = 1 + (int)below(3), all = 1;
    int order = below(2) ? MPI_ORDER_C : MPI_ORDER_FORTRAN;
    MPI_Datatype type;
    for (int i = 0; i < count; i++) {
        sizes[i] = 1 + (int)below(6);
        parts[i] = 1 + (int)below(sizes[i]);
        starts[i] = (int)below(sizes[i] - parts[i] + 1);
        grid[i] = 1 + (int)below(3);
        ways[i] = (int[]){MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_NONE}[below(3)];
        arguments[i] = MPI_DISTRIBUTE_DFLT_DARG;
        if (ways[i] == MPI_DISTRIBUTE_NONE)
            grid[i] = 1;
        else if (below(2))
            arguments[i] = (sizes[i] + grid[i] - 1) / grid[i] + (int)below(2);
        if (ways[i] == MPI_DISTRIBUTE_CYCLIC && below(2))
            arguments[i] = 1 + (int)below(3);
        all *= grid[i];
    }
    if (below(2))
        MPI_Type_create_subarray(count, sizes, parts, starts, order, of, &type);
    else
        MPI_Type_create_darray(all, (int)below(all), count, sizes, ways, arguments, grid, order, of, &type);
    return type;
}

static MPI_Datatype random_type(int depth)
{
    enum { MOST = 5 };
    int lengths[MOST], places[MOST], count = (int)below(MOST);
    MPI_Aint far[MOST];
    MPI_Datatype of, type, types[MOST];
    if (!depth)
        return basic();
    of = random_type((int)below(depth));
    for (int i = 0; i < MOST; i++) {
        lengths[i] = (int)below(4);
        places[i] = i * 3 + (int)below(3);
        far[i] = i * 300 + below(100);
    }
    switch (below(12)) {
    case 0:
        MPI_Type_contiguous(count, of, &type);
        break;
    case 1:
        MPI_Type_vector(count, lengths[0], 1 + (int)below(5), of, &type);
        break;
    case 2:
        MPI_Type_create_hvector(count, lengths[0], 64 + below(900), of, &type);
        break;
    case 3:
        MPI_Type_indexed(count, lengths, places, of, &type);
        break;
    case 4:
        MPI_Type_create_hindexed(count, lengths, far, of, &type);
        break;
    case 5:
        MPI_Type_create_indexed_block(count, lengths[0], places, of, &type);
        break;
    case 6:
        MPI_Type_create_hindexed_block(count, lengths[0], far, of, &type);
        break;
    case 7:
        for (int i = 0; i < MOST; i++)
            types[i] = i ? random_type((int)below(depth)) : of;
        MPI_Type_create_struct(count, lengths, far, types, &type);
        for (int i = 1; i < MOST; i++)
            forget(types[i]);
        break;
    case 8:
        MPI_Type_create_resized(of, below(9) - 4, below(400), &type);
        break;
    case 9:
        MPI_Type_dup(of, &type);
        break;
    default:
        type = array(of);
    }
    forget(of);
    /* MPICH 4.0.2 divides by the size of empty parts. */
    MPI_Type_size(type, &count);
    if (count)
        return type;
    forget(type);
    return basic();
}

struct copy {
    const char *from;
    char *to;
    int64_t runs;
};

static int copy(void *context, int64_t at, int64_t size)
{
    struct copy *copy = context;
    memcpy(copy->to, copy->from + at, size);
    copy->to += size;
    copy->runs++;
    return 0;
}

/* Returns why the layout of a type is wrong. */
static const char *check(MPI_Datatype type)
{
    MPI_Aint lower, extent;
    int size, at = 0, count = 1 + (int)below(3);
    const char *why = NULL;
    MPI_Type_get_true_extent(type, &lower, &extent);
    MPI_Type_size(type, &size);
    if (size > 1 << 16 || lower < -(1 << 20) || extent > 1 << 20)
        return NULL;
    struct layout *layout = layout_of(type, NATIVE_BYTES);
    enum { ORIGIN = 4 << 20 };
    static char memory[3 * ORIGIN], packed[1 << 18], walked[1 << 18];
    MPI_Type_get_extent(type, &lower, &extent);
    if (extent > 1 << 20 || extent < -(1 << 20))
        count = 1;
    if (!layout)
        return "cannot be read";
    if (!*memory)
        for (int i = 0; i < 3 * ORIGIN; i++)
            memory[i] = (char)(1 + (i * 2654435761u >> 24) % 251);
    if (layout_size(layout) != size)
        why = "has another size";
    else if (layout_extent(layout) != extent)
        why = "has another extent";
    else {
        MPI_Pack(memory + ORIGIN, count, type, packed, sizeof packed, &at, MPI_COMM_SELF);
        struct copy whole = {memory + ORIGIN, walked, 0}, parts = {memory + ORIGIN, walked, 0};
        layout_walk(layout, 0, 0, (int64_t)count * size, copy, &whole);
        if (at != count * size || memcmp(packed, walked, at))
            why = "has other bytes";
        memset(walked, 0, sizeof walked);
        for (int64_t from = 0, to; from < at; from = to) {
            to = from + 1 + below(at);
            layout_walk(layout, 0, from, to < at ? to : at, copy, &parts);
        }
        if (!why && memcmp(packed, walked, at))
            why = "has other bytes by parts";
    }
    layout_free(layout);
    return why;
}

int main(int count, char **words)
{
    int failed = 0, checked = 0;
    MPI_Init(&count, &words);
    uint64_t first = count > 1 ? strtoull(words[1], NULL, 10) : 1, all = count > 2 ? strtoull(words[2], NULL, 10) : 20000;
    for (uint64_t seed = first; seed < first + all; seed++) {
        state = seed * 0x9e3779b97f4a7c15u;
        below(2);
        MPI_Datatype type = random_type(1 + (int)below(4));
        const char *why;
        MPI_Type_commit(&type);
        why = check(type);
        forget(type);
        checked++;
        if (why && failed++ < 10)
            printf("the type of seed %llu %s\n", (unsigned long long)seed, why);
    }
    printf("%d of %d types are wrong\n", failed, checked);
    MPI_Finalize();
    return failed != 0;
}
