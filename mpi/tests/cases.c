/* Cases of MPI-IO, each run by all ranks: cases CASE FILE. Each checks what it reads; the file that is left can be
 * compared with that of a local run. */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks, failed;
static const char *file;

/* Prints a line for each check that fails. */
#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            failed++;                                                                                                  \
            printf("rank %d, line %d: not %s\n", rank, __LINE__, #what);                                               \
        }                                                                                                              \
    } while (0)
#define GOOD(call) CHECK((call) == MPI_SUCCESS)
#define FAILS(call, class) CHECK(class_of(call) == (class))

static int class_of(int code)
{
    int class;
    MPI_Error_class(code, &class);
    return class;
}

static MPI_File opened(int mode)
{
    MPI_File handle = MPI_FILE_NULL;
    GOOD(MPI_File_open(MPI_COMM_WORLD, file, mode, MPI_INFO_NULL, &handle));
    if (handle == MPI_FILE_NULL) {
        fflush(stdout);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    return handle;
}

static MPI_File created(void)
{
    return opened(MPI_MODE_CREATE | MPI_MODE_RDWR);
}

static void barrier(MPI_File handle)
{
    GOOD(MPI_File_sync(handle));
    MPI_Barrier(MPI_COMM_WORLD);
    GOOD(MPI_File_sync(handle));
}

static int received(MPI_Status *status, MPI_Datatype type)
{
    int count;
    MPI_Get_count(status, type, &count);
    return count;
}

/* ---- Views ------------------------------------------------------------------------------------------------ */

/* An array of 64 by 48, distributed by blocks in one dimension and cyclically in the other. */
static void array(void)
{
    enum { ROWS = 64, COLUMNS = 48 };
    int sizes[] = {ROWS, COLUMNS}, ways[] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC};
    int arguments[] = {MPI_DISTRIBUTE_DFLT_DARG, 3}, grid[] = {0, 0}, bytes;
    MPI_Datatype type;
    MPI_Status status;
    MPI_File handle = created();
    MPI_Dims_create(ranks, 2, grid);
    MPI_Type_create_darray(ranks, rank, 2, sizes, ways, arguments, grid, MPI_ORDER_C, MPI_INT, &type);
    MPI_Type_commit(&type);
    MPI_Type_size(type, &bytes);
    int count = bytes / (int)sizeof(int), *mine = calloc(count, sizeof *mine), *back = calloc(count, sizeof *back);
    for (int i = 0; i < count; i++)
        mine[i] = rank * 100000 + i;
    GOOD(MPI_File_set_view(handle, 16, MPI_INT, type, "native", MPI_INFO_NULL));
    GOOD(MPI_File_write_all(handle, mine, count, MPI_INT, &status));
    CHECK(received(&status, MPI_INT) == count);
    barrier(handle);
    GOOD(MPI_File_read_at_all(handle, 0, back, count, MPI_INT, &status));
    CHECK(received(&status, MPI_INT) == count && !memcmp(mine, back, bytes));
    GOOD(MPI_File_close(&handle));
    /* All see the whole. */
    int *all = calloc(ROWS * COLUMNS + 4, sizeof *all), seen[64] = {0};
    handle = opened(MPI_MODE_RDONLY);
    GOOD(MPI_File_read_all(handle, all, ROWS * COLUMNS + 4, MPI_INT, &status));
    CHECK(received(&status, MPI_INT) == ROWS * COLUMNS + 4);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        seen[all[i + 4] / 100000]++;
    for (int i = 0; i < ranks; i++)
        CHECK(seen[i] >= ROWS * COLUMNS / ranks / 2);
    GOOD(MPI_File_close(&handle));
    MPI_Type_free(&type);
    free(mine);
    free(back);
    free(all);
}

/* Each rank writes a column of records, from memory with gaps; the next rank's column is read. */
static void columns(void)
{
    enum { CELLS = 1000 };
    MPI_Datatype column, gapped;
    MPI_Status status;
    MPI_File handle = created();
    int memory[2 * CELLS], next = (rank + 1) % ranks, back[CELLS];
    MPI_Type_vector(CELLS, 1, ranks, MPI_INT, &column);
    MPI_Type_vector(CELLS, 1, 2, MPI_INT, &gapped);
    MPI_Type_commit(&column);
    MPI_Type_commit(&gapped);
    for (int i = 0; i < 2 * CELLS; i++)
        memory[i] = i % 2 ? -1 : rank * CELLS + i / 2;
    GOOD(MPI_File_set_view(handle, rank * sizeof(int), MPI_INT, column, "native", MPI_INFO_NULL));
    GOOD(MPI_File_write_at(handle, 0, memory, 1, gapped, &status));
    CHECK(received(&status, MPI_INT) == CELLS);
    barrier(handle);
    GOOD(MPI_File_set_view(handle, next * sizeof(int), MPI_INT, column, "native", MPI_INFO_NULL));
    memset(memory, 0xff, sizeof memory);
    GOOD(MPI_File_read(handle, memory, 1, gapped, &status));
    for (int i = 0; i < 2 * CELLS; i++)
        CHECK(memory[i] == (i % 2 ? -1 : next * CELLS + i / 2) || failed > 9);
    GOOD(MPI_File_seek(handle, 0, MPI_SEEK_SET));
    for (int i = 0; i < CELLS; i++)
        GOOD(MPI_File_read(handle, &back[i], 1, MPI_INT, &status));
    CHECK(back[0] == next * CELLS && back[CELLS - 1] == next * CELLS + CELLS - 1);
    GOOD(MPI_File_close(&handle));
    MPI_Type_free(&column);
    MPI_Type_free(&gapped);
}

/* Pointers, offsets and short reads. */
static void pointers(void)
{
    MPI_File handle = created();
    MPI_Datatype type, etype, file_type;
    MPI_Offset at, size;
    MPI_Status status;
    MPI_Group mine, world;
    char bytes[100], name[MPI_MAX_DATAREP_STRING];
    int mode, is_same;
    memset(bytes, 'a' + rank, sizeof bytes);
    GOOD(MPI_File_seek(handle, rank * 100, MPI_SEEK_SET));
    GOOD(MPI_File_write(handle, bytes, 60, MPI_CHAR, &status));
    GOOD(MPI_File_get_position(handle, &at));
    CHECK(at == rank * 100 + 60);
    GOOD(MPI_File_write_all(handle, bytes, 40, MPI_CHAR, &status));
    barrier(handle);
    GOOD(MPI_File_get_size(handle, &size));
    CHECK(size == 100 * ranks);
    GOOD(MPI_File_seek(handle, -10, MPI_SEEK_END));
    GOOD(MPI_File_read(handle, bytes, 100, MPI_CHAR, &status));
    CHECK(received(&status, MPI_CHAR) == 10 && bytes[9] == 'a' + ranks - 1);
    GOOD(MPI_File_read(handle, bytes, 100, MPI_CHAR, &status));
    CHECK(received(&status, MPI_CHAR) == 0);
    GOOD(MPI_File_seek(handle, -5, MPI_SEEK_CUR));
    GOOD(MPI_File_get_position(handle, &at));
    CHECK(at == size - 5);
    FAILS(MPI_File_seek(handle, -1, MPI_SEEK_SET), MPI_ERR_ARG);
    MPI_Type_create_resized(MPI_INT, 0, 12, &type);
    MPI_Type_commit(&type);
    GOOD(MPI_File_set_view(handle, 8, MPI_INT, type, "native", MPI_INFO_NULL));
    GOOD(MPI_File_get_byte_offset(handle, 3, &at));
    CHECK(at == 8 + 36);
    GOOD(MPI_File_get_view(handle, &at, &etype, &file_type, name));
    CHECK(at == 8 && etype == MPI_INT && !strcmp(name, "native"));
    GOOD(MPI_File_get_amode(handle, &mode));
    CHECK(mode == (MPI_MODE_CREATE | MPI_MODE_RDWR));
    GOOD(MPI_File_get_group(handle, &mine));
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_compare(mine, world, &is_same);
    CHECK(is_same == MPI_IDENT);
    MPI_Group_free(&mine);
    MPI_Group_free(&world);
    MPI_Type_free(&file_type);
    MPI_Type_free(&type);
    GOOD(MPI_File_close(&handle));
    CHECK(handle == MPI_FILE_NULL);
}

/* ---- Files as a whole ------------------------------------------------------------------------------------- */

static void sizes(void)
{
    MPI_File handle = created();
    MPI_Offset size, at;
    MPI_Status status;
    char bytes[1000] = {0};
    memset(bytes, 'x', 100);
    if (!rank)
        GOOD(MPI_File_write(handle, bytes, 100, MPI_CHAR, &status));
    barrier(handle);
    GOOD(MPI_File_set_size(handle, 1000));
    GOOD(MPI_File_get_size(handle, &size));
    CHECK(size == 1000);
    GOOD(MPI_File_read_at_all(handle, 0, bytes, 1000, MPI_CHAR, &status));
    CHECK(received(&status, MPI_CHAR) == 1000 && bytes[99] == 'x' && !bytes[100] && !bytes[999]);
    GOOD(MPI_File_set_size(handle, 50));
    GOOD(MPI_File_preallocate(handle, 20));
    GOOD(MPI_File_get_size(handle, &size));
    CHECK(size == 50);
    GOOD(MPI_File_preallocate(handle, 70));
    GOOD(MPI_File_get_size(handle, &size));
    CHECK(size == 70);
    FAILS(MPI_File_set_size(handle, -1), MPI_ERR_ARG);
    if (ranks > 1)
        FAILS(MPI_File_set_size(handle, rank), MPI_ERR_NOT_SAME);
    GOOD(MPI_File_close(&handle));
    handle = opened(MPI_MODE_WRONLY | MPI_MODE_APPEND);
    GOOD(MPI_File_get_position(handle, &at));
    CHECK(at == 70);
    MPI_Barrier(MPI_COMM_WORLD);
    GOOD(MPI_File_write_ordered(handle, (char[]){'0' + rank}, 1, MPI_CHAR, &status));
    GOOD(MPI_File_close(&handle));
    handle = opened(MPI_MODE_RDONLY | MPI_MODE_UNIQUE_OPEN);
    GOOD(MPI_File_read_at(handle, 70, bytes, 1000, MPI_CHAR, &status));
    CHECK(received(&status, MPI_CHAR) == ranks && bytes[ranks - 1] == '0' + ranks - 1);
    GOOD(MPI_File_close(&handle));
}

static void modes(void)
{
    MPI_File handle = MPI_FILE_NULL;
    MPI_Status status;
    char bytes[10] = "bytes";
    int wrong[] = {MPI_MODE_RDONLY | MPI_MODE_RDWR, MPI_MODE_RDONLY | MPI_MODE_CREATE, 0,
                   MPI_MODE_RDWR | MPI_MODE_SEQUENTIAL};
    for (int i = 0; i < 4; i++)
        FAILS(MPI_File_open(MPI_COMM_WORLD, file, wrong[i], MPI_INFO_NULL, &handle), MPI_ERR_AMODE);
    FAILS(MPI_File_open(MPI_COMM_WORLD, file, MPI_MODE_RDONLY, MPI_INFO_NULL, &handle), MPI_ERR_NO_SUCH_FILE);
    FAILS(MPI_File_open(MPI_COMM_WORLD, file, rank ? MPI_MODE_RDWR : MPI_MODE_WRONLY, MPI_INFO_NULL, &handle),
          ranks > 1 ? MPI_ERR_NOT_SAME : MPI_ERR_NO_SUCH_FILE);
    /* It is created by the open, without a byte. */
    handle = opened(MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_WRONLY);
    FAILS(MPI_File_read(handle, bytes, 1, MPI_CHAR, &status), MPI_ERR_ACCESS);
    GOOD(MPI_File_close(&handle));
    FAILS(MPI_File_open(MPI_COMM_WORLD, file, MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_RDWR, MPI_INFO_NULL, &handle),
          MPI_ERR_FILE_EXISTS);
    handle = opened(MPI_MODE_RDONLY);
    CHECK(class_of(MPI_File_write(handle, bytes, 1, MPI_CHAR, &status)) != MPI_SUCCESS);
    CHECK(class_of(MPI_File_sync(handle)) != MPI_SUCCESS);
    GOOD(MPI_File_read(handle, bytes, 10, MPI_CHAR, &status));
    CHECK(received(&status, MPI_CHAR) == 0);
    GOOD(MPI_File_close(&handle));
    /* An existing file is not harmed by MPI_MODE_CREATE, and a sequential one has a shared pointer. */
    handle = opened(MPI_MODE_CREATE | MPI_MODE_WRONLY | MPI_MODE_SEQUENTIAL);
    GOOD(MPI_File_write_ordered(handle, bytes, 5, MPI_CHAR, &status));
    CHECK(class_of(MPI_File_write_at(handle, 0, bytes, 1, MPI_CHAR, &status)) == MPI_ERR_UNSUPPORTED_OPERATION);
    GOOD(MPI_File_close(&handle));
    handle = opened(MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE);
    GOOD(MPI_File_read_at(handle, 5 * (ranks - 1), bytes, 10, MPI_CHAR, &status));
    CHECK(received(&status, MPI_CHAR) == 5 && !memcmp(bytes, "bytes", 5));
    GOOD(MPI_File_close(&handle));
    MPI_Barrier(MPI_COMM_WORLD);
    FAILS(MPI_File_delete(file, MPI_INFO_NULL), MPI_ERR_NO_SUCH_FILE);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Arguments that no call takes; each call fails alone, and the file goes on to work. */
static void errors(void)
{
    MPI_File handle = created();
    MPI_Datatype down;
    MPI_Status status;
    MPI_Request request;
    char bytes[8] = "8 bytes";
    int places[] = {3, 0};
    CHECK(class_of(MPI_File_write(handle, bytes, -1, MPI_CHAR, &status)) != MPI_SUCCESS);
    CHECK(class_of(MPI_File_write_at(handle, -1, bytes, 1, MPI_CHAR, &status)) != MPI_SUCCESS);
    CHECK(class_of(MPI_File_iread_at(handle, -1, bytes, 1, MPI_CHAR, &request)) != MPI_SUCCESS);
    CHECK(class_of(MPI_File_read_all_end(handle, bytes, &status)) != MPI_SUCCESS);
    CHECK(class_of(MPI_File_set_view(handle, -1, MPI_CHAR, MPI_CHAR, "native", MPI_INFO_NULL)) != MPI_SUCCESS);
    CHECK(class_of(MPI_File_set_view(handle, 0, MPI_CHAR, MPI_CHAR, "of Mars", MPI_INFO_NULL)) ==
          MPI_ERR_UNSUPPORTED_DATAREP);
    MPI_Type_create_indexed_block(2, 1, places, MPI_INT, &down);
    MPI_Type_commit(&down);
    CHECK(class_of(MPI_File_set_view(handle, 0, MPI_INT, down, "native", MPI_INFO_NULL)) != MPI_SUCCESS);
    GOOD(MPI_File_set_view(handle, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    FAILS(MPI_File_write(handle, bytes, 3, MPI_CHAR, &status), MPI_ERR_IO);
    if (!rank)
        GOOD(MPI_File_write(handle, bytes, 8, MPI_CHAR, &status));
    MPI_Type_free(&down);
    GOOD(MPI_File_close(&handle));
}

/* ---- Shared, ordered, atomic ------------------------------------------------------------------------------ */

static void shared(void)
{
    enum { EACH = 50 };
    MPI_File handle = created();
    MPI_Offset at;
    MPI_Status status;
    int value[2], *all = calloc(ranks * EACH * 2, sizeof *all), *seen = calloc(ranks * EACH, sizeof *seen);
    GOOD(MPI_File_set_view(handle, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    for (int i = 0; i < EACH; i++) {
        value[0] = rank * EACH + i;
        value[1] = -value[0];
        GOOD(MPI_File_write_shared(handle, value, 2, MPI_INT, &status));
    }
    barrier(handle);
    GOOD(MPI_File_get_position_shared(handle, &at));
    CHECK(at == 2 * ranks * EACH);
    GOOD(MPI_File_read_at_all(handle, 0, all, 2 * ranks * EACH, MPI_INT, &status));
    for (int i = 0; i < ranks * EACH; i++) {
        CHECK(all[2 * i] == -all[2 * i + 1]);
        seen[all[2 * i]]++;
    }
    for (int i = 0; i < ranks * EACH; i++)
        CHECK(seen[i] == 1);
    GOOD(MPI_File_seek_shared(handle, 2 * EACH, MPI_SEEK_SET));
    GOOD(MPI_File_read_ordered(handle, value, 2, MPI_INT, &status));
    CHECK(value[0] == all[2 * EACH + 2 * rank]);
    for (int i = 0; i < 2 * ranks * EACH; i++)
        all[i] = rank;
    GOOD(MPI_File_seek_shared(handle, 0, MPI_SEEK_SET));
    /* What is left does not depend on who was first. */
    GOOD(MPI_File_write_ordered_begin(handle, all, 2 * EACH, MPI_INT));
    GOOD(MPI_File_write_ordered_end(handle, all, &status));
    CHECK(received(&status, MPI_INT) == 2 * EACH);
    MPI_Barrier(MPI_COMM_WORLD);
    GOOD(MPI_File_get_position_shared(handle, &at));
    CHECK(at == 2 * ranks * EACH);
    GOOD(MPI_File_close(&handle));
    free(all);
    free(seen);
}

/* Rank 0 writes all of a block again and again, the others see one value in it. */
static void atomic(void)
{
    enum { CELLS = 20000, ROUNDS = 20 };
    MPI_File handle = created();
    MPI_Datatype column;
    MPI_Status status;
    int is_atomic, *cells = calloc(CELLS, sizeof *cells);
    MPI_Type_vector(CELLS, 1, 2, MPI_INT, &column);
    MPI_Type_commit(&column);
    GOOD(MPI_File_set_view(handle, 0, MPI_INT, column, "native", MPI_INFO_NULL));
    GOOD(MPI_File_set_atomicity(handle, 1));
    GOOD(MPI_File_get_atomicity(handle, &is_atomic));
    CHECK(is_atomic == 1);
    if (!rank)
        GOOD(MPI_File_write_at(handle, 0, cells, CELLS, MPI_INT, &status));
    MPI_Barrier(MPI_COMM_WORLD);
    for (int round = 1; round <= ROUNDS; round++) {
        for (int i = 0; !rank && i < CELLS; i++)
            cells[i] = round;
        if (!rank)
            GOOD(MPI_File_write_at(handle, 0, cells, CELLS, MPI_INT, &status));
        else {
            GOOD(MPI_File_read_at(handle, 0, cells, CELLS, MPI_INT, &status));
            for (int i = 1; i < CELLS; i++)
                CHECK(cells[i] == cells[0] || failed > 9);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    GOOD(MPI_File_read_at(handle, 0, cells, CELLS, MPI_INT, &status));
    CHECK(cells[0] == ROUNDS && cells[CELLS - 1] == ROUNDS);
    GOOD(MPI_File_set_atomicity(handle, 0));
    GOOD(MPI_File_close(&handle));
    MPI_Type_free(&column);
    free(cells);
}

/* ---- Nonblocking and split -------------------------------------------------------------------------------- */

static void nonblocking(void)
{
    enum { PARTS = 8, CELLS = 500 };
    static int parts[PARTS][CELLS], message, heard;
    MPI_File handle = created();
    MPI_Request requests[PARTS + 2];
    MPI_Status status, statuses[PARTS + 2];
    int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks, nth, flag, left = PARTS;
    for (int i = 0; i < PARTS; i++) {
        for (int j = 0; j < CELLS; j++)
            parts[i][j] = (rank * PARTS + i) * CELLS + j;
        GOOD(MPI_File_iwrite_at(handle, sizeof parts[i] * (rank * PARTS + i), parts[i], CELLS, MPI_INT, &requests[i]));
    }
    GOOD(MPI_Waitall(PARTS, requests, statuses));
    CHECK(received(&statuses[PARTS - 1], MPI_INT) == CELLS);
    GOOD(MPI_File_close(&handle));
    handle = opened(MPI_MODE_RDONLY);
    memset(parts, 0, sizeof parts);
    /* Beside messages, of which one comes when the reads are waited for. */
    GOOD(MPI_File_seek(handle, sizeof parts * next, MPI_SEEK_SET));
    for (int i = 0; i < PARTS; i++)
        GOOD(MPI_File_iread(handle, parts[i], CELLS, MPI_INT, &requests[i]));
    MPI_Irecv(&heard, 1, MPI_INT, previous, 1, MPI_COMM_WORLD, &requests[PARTS]);
    message = rank + 1;
    MPI_Isend(&message, 1, MPI_INT, next, 1, MPI_COMM_WORLD, &requests[PARTS + 1]);
    GOOD(MPI_Cancel(&requests[0]));
    GOOD(MPI_Wait(&requests[0], &status));
    MPI_Test_cancelled(&status, &flag);
    CHECK(!flag && received(&status, MPI_INT) == CELLS);
    for (int i = 1; i < PARTS + 2; i++) {
        GOOD(MPI_Waitany(PARTS + 2, requests, &nth, &status));
        left -= nth < PARTS;
        CHECK(nth >= PARTS || received(&status, MPI_INT) == CELLS);
    }
    CHECK(heard == previous + 1 && left == 1);
    for (int i = 0; i < PARTS; i++)
        CHECK(parts[i][0] == (next * PARTS + i) * CELLS && parts[i][CELLS - 1] == parts[i][0] + CELLS - 1);
    memset(parts, 0, sizeof parts);
    GOOD(MPI_File_iread_at_all(handle, sizeof parts * rank, parts[0], CELLS, MPI_INT, &requests[0]));
    GOOD(MPI_Request_free(&requests[0]));
    CHECK(parts[0][1] == rank * PARTS * CELLS + 1);
    GOOD(MPI_File_iread_at(handle, sizeof parts * ranks - 4, parts[1], CELLS, MPI_INT, &requests[0]));
    for (flag = 0; !flag;)
        GOOD(MPI_Test(&requests[0], &flag, &status));
    CHECK(received(&status, MPI_INT) == 1);
    GOOD(MPI_File_read_at_all_begin(handle, 0, parts[2], CELLS, MPI_INT));
    CHECK(class_of(MPI_File_read_all_begin(handle, parts[3], CELLS, MPI_INT)) != MPI_SUCCESS);
    GOOD(MPI_File_read_at_all_end(handle, parts[2], &status));
    CHECK(received(&status, MPI_INT) == CELLS && parts[2][CELLS - 1] == CELLS - 1);
    GOOD(MPI_File_close(&handle));
}

/* ---- Machines, hints, representations --------------------------------------------------------------------- */

/* Each rank sees what all wrote, after a sync, a barrier and a sync. */
static void rounds(void)
{
    enum { ROUNDS = 5, CELLS = 300 };
    MPI_File handle = created();
    MPI_Status status;
    int mine[CELLS], *all = calloc(ranks * CELLS, sizeof *all);
    for (int round = 1; round <= ROUNDS; round++) {
        for (int i = 0; i < CELLS; i++)
            mine[i] = round * 1000 + rank;
        GOOD(MPI_File_write_at(handle, rank * sizeof mine, mine, CELLS, MPI_INT, &status));
        barrier(handle);
        GOOD(MPI_File_read_at(handle, 0, all, ranks * CELLS, MPI_INT, &status));
        for (int i = 0; i < ranks * CELLS; i++)
            CHECK(all[i] == round * 1000 + i / CELLS || failed > 9);
        barrier(handle);
    }
    GOOD(MPI_File_close(&handle));
    free(all);
}

static void told(MPI_File handle, const char *key, const char *expected)
{
    MPI_Info info;
    char value[100] = "";
    int is_there = 0;
    GOOD(MPI_File_get_info(handle, &info));
    MPI_Info_get(info, key, 99, value, &is_there);
    CHECK(is_there && !strcmp(value, expected));
    if (strcmp(value, expected))
        printf("%s is %s, not %s\n", key, value, expected);
    MPI_Info_free(&info);
}

enum { HINTED_BYTES = 4 << 20 };

/* Moves bytes enough for several streams. */
static void move_hinted(MPI_File handle, int is_read)
{
    MPI_Offset part = HINTED_BYTES / ranks;
    char *bytes = calloc(1, part);
    MPI_Status status;
    if (is_read)
        GOOD(MPI_File_read_at_all(handle, rank * part, bytes, (int)part, MPI_CHAR, &status));
    else
        GOOD(MPI_File_write_at_all(handle, rank * part, bytes, (int)part, MPI_CHAR, &status));
    CHECK(received(&status, MPI_CHAR) == part);
    free(bytes);
}

/* The test beside this looks how many data connections the server had. */
static void hints(void)
{
    int is_ftp = !strncmp(file, "ftp:", 4);
    MPI_Info info;
    MPI_File handle = MPI_FILE_NULL;
    MPI_Info_create(&info);
    MPI_Info_set(info, "ftp_control_mode", "stream");
    MPI_Info_set(info, "parallelism", "4");
    MPI_Info_set(info, "transfer_type", "ascii");
    MPI_Info_set(info, "tcp_buffer", "many");
    MPI_Info_set(info, "colour", "blue");
    GOOD(MPI_File_open(MPI_COMM_WORLD, file, MPI_MODE_CREATE | MPI_MODE_RDWR, info, &handle));
    told(handle, "ftp_control_mode", is_ftp ? "stream" : "extended");
    told(handle, "parallelism", "1");
    told(handle, "transfer_type", "binary");
    told(handle, "tcp_buffer", "tuned");
    told(handle, "striped_ftp", is_ftp ? "true" : "false");
    move_hinted(handle, 0);
    GOOD(MPI_File_close(&handle));
    MPI_Info_set(info, "ftp_control_mode", "extended");
    MPI_Info_set(info, "striped_ftp", "disable");
    MPI_Info_set(info, "tcp_buffer", "65536");
    MPI_Info_set(info, "parallelism", rank ? "7" : "4"); /* that of rank 0 counts */
    GOOD(MPI_File_open(MPI_COMM_WORLD, file, MPI_MODE_RDWR, info, &handle));
    told(handle, "parallelism", "4");
    told(handle, "striped_ftp", "false");
    told(handle, "tcp_buffer", is_ftp ? "65536" : "tuned");
    move_hinted(handle, 0);
    GOOD(MPI_File_close(&handle));
    MPI_Info_set(info, "parallelism", "3");
    GOOD(MPI_File_open(MPI_COMM_WORLD, file, MPI_MODE_RDONLY, info, &handle));
    move_hinted(handle, 1);
    GOOD(MPI_File_close(&handle));
    MPI_Info_free(&info);
}

static void external(void)
{
    MPI_File handle = created();
    MPI_Status status;
    int values[3] = {rank, 0x01020304, -1}, back[3] = {0};
    unsigned char bytes[12];
    GOOD(MPI_File_set_view(handle, 0, MPI_INT, MPI_INT, "external32", MPI_INFO_NULL));
    GOOD(MPI_File_write_at(handle, 3 * rank, values, 3, MPI_INT, &status));
    CHECK(received(&status, MPI_INT) == 3);
    GOOD(MPI_File_read_at(handle, 3 * rank, back, 3, MPI_INT, &status));
    CHECK(!memcmp(values, back, sizeof back) && received(&status, MPI_INT) == 3);
    barrier(handle);
    GOOD(MPI_File_set_view(handle, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    GOOD(MPI_File_read_at(handle, 0, bytes, 12, MPI_BYTE, &status));
    CHECK(bytes[4] == 1 && bytes[7] == 4);
    GOOD(MPI_File_close(&handle));
}

/* Where nothing may be written, all ranks are refused, and what is there is read. */
static void refused(void)
{
    MPI_File handle = MPI_FILE_NULL;
    MPI_Status status;
    char bytes[10] = "";
    FAILS(MPI_File_open(MPI_COMM_WORLD, file, MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_RDWR, MPI_INFO_NULL, &handle),
          MPI_ERR_FILE_EXISTS);
    CHECK(handle == MPI_FILE_NULL);
    handle = opened(MPI_MODE_RDWR);
    GOOD(MPI_File_write_at(handle, rank, "x", 1, MPI_CHAR, &status));
    FAILS(MPI_File_sync(handle), MPI_ERR_ACCESS);
    FAILS(MPI_File_close(&handle), MPI_ERR_ACCESS);
    CHECK(handle == MPI_FILE_NULL);
    handle = opened(MPI_MODE_RDONLY);
    GOOD(MPI_File_read_all(handle, bytes, 10, MPI_CHAR, &status));
    CHECK(received(&status, MPI_CHAR) == 4 && !memcmp(bytes, "text", 4));
    GOOD(MPI_File_close(&handle));
    CHECK(class_of(MPI_File_delete(file, MPI_INFO_NULL)) != MPI_SUCCESS);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    {"array", array},   {"columns", columns}, {"pointers", pointers}, {"sizes", sizes},
    {"modes", modes},   {"errors", errors},   {"shared", shared},     {"atomic", atomic},
    {"rounds", rounds}, {"hints", hints},     {"external", external}, {"nonblocking", nonblocking},
    {"refused", refused},
};

int main(int count, char **words)
{
    int all = 0, found = 0;
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    file = count > 2 ? words[2] : "";
    for (size_t i = 0; count > 2 && i < sizeof cases / sizeof *cases; i++)
        if (!strcmp(words[1], cases[i].name)) {
            cases[i].run();
            found = 1;
        }
    MPI_Allreduce(&failed, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (!rank)
        printf("%s: %d checks failed\n", found ? words[1] : "no such case", all);
    MPI_Finalize();
    return all != 0 || !found;
}
