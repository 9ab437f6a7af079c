/* mpi MODE NAME ...: ranks read and write one file by MPI-IO; rank 0 prints a line of JSON with the slowest rank's seconds.
 *
 *   write NAME BYTES      each rank writes its part; then a sync
 *   read NAME BYTES       each rank reads its part
 *   perf NAME BYTES       as ROMIO's perf: each rank writes its part and reads it from a new open, without and with sync
 *   cells NAME COUNT      each rank writes COUNT cells of a column that is interleaved with those of others, one by one,
 *                         syncs, and reads them one by one
 *   stride NAME BYTES %   each rank reads pieces of 4 KiB, so many of a hundred, in one call
 *   slices NAME COUNT     rank 0 reads COUNT slices of 128 KiB of a file
 *   beside NAME BYTES     four reads that do not block, of BYTES each, beside as long a time of computing
 *   pointer NAME COUNT    rank 1 writes COUNT times by the shared pointer, while rank 0 computes for 2 s */

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;
static MPI_File file;

static void must(int code, const char *what)
{
    char words[MPI_MAX_ERROR_STRING] = "";
    int length;
    if (!code)
        return;
    MPI_Error_string(code, words, &length);
    fprintf(stderr, "%s: %s\n", what, words);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static double begin(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
    return MPI_Wtime();
}

static double since(double start)
{
    double mine = MPI_Wtime() - start, most;
    MPI_Allreduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return most;
}

static void open_as(const char *name, int mode)
{
    must(MPI_File_open(MPI_COMM_WORLD, name, mode, MPI_INFO_NULL, &file), "open");
}

static char *bytes_of(int64_t size, int seed)
{
    char *bytes = malloc(size ? size : 1);
    for (int64_t i = 0; i < size; i++)
        bytes[i] = (char)(i * 2654435761u >> 13) + seed;
    return bytes;
}

static void compute(double seconds)
{
    volatile double sum = 0;
    double end = MPI_Wtime() + seconds;
    while (MPI_Wtime() < end)
        for (int i = 0; i < 10000; i++)
            sum += i;
}

static void write_parts(const char *name, int64_t size)
{
    char *bytes = bytes_of(size, rank);
    open_as(name, MPI_MODE_CREATE | MPI_MODE_RDWR);
    double start = begin();
    must(MPI_File_write_at(file, rank * size, bytes, size, MPI_BYTE, MPI_STATUS_IGNORE), "write");
    double wrote = since(start);
    must(MPI_File_sync(file), "sync");
    double synced = since(start);
    must(MPI_File_close(&file), "close");
    double closed = since(start);
    if (!rank)
        printf("{\"seconds\":%f,\"synced\":%f,\"closed\":%f}\n", wrote, synced, closed);
}

static void read_parts(const char *name, int64_t size)
{
    char *bytes = bytes_of(size, 0), *expected = bytes_of(size, rank);
    double start = begin();
    open_as(name, MPI_MODE_RDONLY);
    double opened = since(start);
    must(MPI_File_read_at(file, rank * size, bytes, size, MPI_BYTE, MPI_STATUS_IGNORE), "read");
    double took = since(start);
    must(memcmp(bytes, expected, size) ? MPI_ERR_IO : 0, "compare");
    must(MPI_File_close(&file), "close");
    if (!rank)
        printf("{\"seconds\":%f,\"opened\":%f}\n", took, opened);
}

/* Tells the seconds of a write, and of a read of what was written by then. */
static void write_and_read(const char *name, char *bytes, int64_t size, int syncs, double took[2])
{
    for (int reads = 0; reads < 2; reads++) {
        open_as(name, MPI_MODE_CREATE | MPI_MODE_RDWR);
        must(MPI_File_seek(file, rank * size, MPI_SEEK_SET), "seek");
        double start = begin();
        must(reads ? MPI_File_read(file, bytes, size, MPI_BYTE, MPI_STATUS_IGNORE)
                   : MPI_File_write(file, bytes, size, MPI_BYTE, MPI_STATUS_IGNORE),
             reads ? "read" : "write");
        if (syncs && !reads)
            must(MPI_File_sync(file), "sync");
        took[reads] = since(start);
        must(MPI_File_close(&file), "close");
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

static void perf(const char *name, int64_t size)
{
    double plain[2], synced[2];
    char *bytes = bytes_of(size, rank);
    write_and_read(name, bytes, size, 0, plain);
    write_and_read(name, bytes, size, 1, synced);
    if (!rank)
        printf("{\"seconds\":%f,\"write\":%f,\"read\":%f,\"write_synced\":%f,\"read_synced\":%f}\n",
               plain[0] + plain[1] + synced[0] + synced[1], plain[0], plain[1], synced[0], synced[1]);
}

static void cells(const char *name, int64_t count)
{
    int32_t cell;
    open_as(name, MPI_MODE_CREATE | MPI_MODE_RDWR);
    double start = begin();
    for (int64_t i = 0; i < count; i++) {
        cell = (int32_t)(i * ranks + rank);
        must(MPI_File_write_at(file, 4 * (i * ranks + rank), &cell, 1, MPI_INT32_T, MPI_STATUS_IGNORE), "write");
    }
    double wrote = since(start);
    must(MPI_File_sync(file), "sync");
    double synced = since(start);
    must(MPI_File_close(&file), "close");
    start = begin();
    open_as(name, MPI_MODE_RDONLY);
    for (int64_t i = 0; i < count; i++) {
        must(MPI_File_read_at(file, 4 * (i * ranks + rank), &cell, 1, MPI_INT32_T, MPI_STATUS_IGNORE), "read");
        must(cell != (int32_t)(i * ranks + rank) ? MPI_ERR_IO : 0, "compare");
    }
    double took = since(start);
    must(MPI_File_close(&file), "close");
    if (!rank)
        printf("{\"seconds\":%f,\"written\":%f,\"synced\":%f,\"read\":%f}\n", synced + took, wrote, synced, took);
}

static void stride(const char *name, int64_t size, int percent)
{
    enum { PIECE = 4096 };
    int64_t step = PIECE * 100 / percent, count = size / step;
    char *bytes = bytes_of(count * PIECE, 0);
    MPI_Datatype type;
    MPI_Type_vector(count, PIECE, step, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    double start = begin();
    open_as(name, MPI_MODE_RDONLY);
    must(MPI_File_set_view(file, rank * size, MPI_BYTE, type, "native", MPI_INFO_NULL), "view");
    must(MPI_File_read(file, bytes, count * PIECE, MPI_BYTE, MPI_STATUS_IGNORE), "read");
    double took = since(start);
    must(MPI_File_close(&file), "close");
    if (!rank)
        printf("{\"seconds\":%f}\n", took);
}

static void slices(const char *name, int64_t count)
{
    enum { SLICE = 128 << 10 };
    static char bytes[SLICE];
    MPI_Offset size;
    open_as(name, MPI_MODE_RDONLY);
    must(MPI_File_get_size(file, &size), "size");
    double start = begin();
    for (int64_t i = 0; !rank && i < count; i++) {
        int64_t at = (int64_t)((uint64_t)(i * 2654435761u) % (size / SLICE)) * SLICE;
        must(MPI_File_read_at(file, at, bytes, SLICE, MPI_BYTE, MPI_STATUS_IGNORE), "read");
    }
    double took = since(start);
    must(MPI_File_close(&file), "close");
    if (!rank)
        printf("{\"seconds\":%f}\n", took);
}

static void beside(const char *name, int64_t size)
{
    enum { READS = 4 };
    char *bytes[READS];
    MPI_Request requests[READS];
    MPI_Status statuses[READS];
    double alone, both, start;
    for (int nth = 0; nth < READS; nth++)
        bytes[nth] = bytes_of(size, 0);
    open_as(name, MPI_MODE_RDWR); /* of a file that is written nothing stays for the next open */
    start = begin();
    for (int nth = 0; nth < READS; nth++)
        must(MPI_File_iread_at(file, nth * size, bytes[nth], size, MPI_BYTE, &requests[nth]), "read");
    must(MPI_Waitall(READS, requests, statuses), "wait");
    alone = since(start);
    must(MPI_File_close(&file), "close");
    open_as(name, MPI_MODE_RDWR);
    start = begin();
    for (int nth = 0; nth < READS; nth++)
        must(MPI_File_iread_at(file, nth * size, bytes[nth], size, MPI_BYTE, &requests[nth]), "read");
    double begun = since(start);
    compute(alone);
    must(MPI_Waitall(READS, requests, statuses), "wait");
    both = since(start);
    must(MPI_File_close(&file), "close");
    if (!rank)
        printf("{\"seconds\":%f,\"alone\":%f,\"begun\":%f,\"ratio\":%f}\n", both, alone, begun, both / alone);
}

static void pointer(const char *name, int64_t count)
{
    int32_t cell = 7;
    double took = 0;
    open_as(name, MPI_MODE_CREATE | MPI_MODE_RDWR);
    double start = begin();
    if (!rank)
        compute(2);
    for (int64_t i = 0; rank == 1 && i < count; i++)
        must(MPI_File_write_shared(file, &cell, 1, MPI_INT32_T, MPI_STATUS_IGNORE), "write");
    if (rank == 1)
        took = MPI_Wtime() - start;
    MPI_Bcast(&took, 1, MPI_DOUBLE, 1, MPI_COMM_WORLD);
    must(MPI_File_close(&file), "close");
    if (!rank)
        printf("{\"seconds\":%f}\n", took);
}

int main(int count, char **words)
{
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const char *mode = count > 3 ? words[1] : "";
    int64_t number = count > 3 ? atoll(words[3]) : 0;
    if (!strcmp(mode, "write"))
        write_parts(words[2], number);
    else if (!strcmp(mode, "read"))
        read_parts(words[2], number);
    else if (!strcmp(mode, "perf"))
        perf(words[2], number);
    else if (!strcmp(mode, "cells"))
        cells(words[2], number);
    else if (!strcmp(mode, "stride") && count > 4)
        stride(words[2], number, atoi(words[4]));
    else if (!strcmp(mode, "slices"))
        slices(words[2], number);
    else if (!strcmp(mode, "beside"))
        beside(words[2], number);
    else if (!strcmp(mode, "pointer"))
        pointer(words[2], number);
    else
        MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_Finalize();
    return 0;
}
