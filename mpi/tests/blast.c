/* blast DATABASE QUERIES RESULTS: searches a database for queries, as mpiBLAST does. Rank 0 reads the queries, a line each,
 * and hands out pairs of a query and a fragment of the database. Workers read fragments, and write one line a pair: where the
 * query occurs first in the fragment, and how often. Prints how many pairs each worker had. */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FRAGMENTS = 8, QUERY_BYTES = 64, QUERIES_MOST = 256, LINE_BYTES = 64, ASKED = 1, TASK = 2 };

static int rank, ranks;

static void must(int code, const char *what)
{
    char words[MPI_MAX_ERROR_STRING] = "";
    int length;
    if (!code)
        return;
    MPI_Error_string(code, words, &length);
    fprintf(stderr, "rank %d: %s: %s\n", rank, what, words);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static MPI_File opened(const char *name, int mode)
{
    MPI_File file;
    must(MPI_File_open(MPI_COMM_WORLD, name, mode, MPI_INFO_NULL, &file), name);
    return file;
}

static MPI_Offset size_of(MPI_File file)
{
    MPI_Offset size;
    must(MPI_File_get_size(file, &size), "size");
    return size;
}

/* Reads the queries by rank 0, and tells all of them to all. */
static int read_queries(const char *name, char (*queries)[QUERY_BYTES])
{
    MPI_File file = opened(name, MPI_MODE_RDONLY);
    int size = (int)size_of(file), count = 0;
    char *text = calloc(1, size + 1), *rest = text;
    if (!rank)
        must(MPI_File_read(file, text, size, MPI_CHAR, MPI_STATUS_IGNORE), "queries");
    for (char *line; (line = strsep(&rest, "\n")) && !rank && count < QUERIES_MOST;)
        if (*line)
            strncpy(queries[count++], line, QUERY_BYTES - 1);
    must(MPI_File_close(&file), "close");
    free(text);
    MPI_Bcast(&count, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Bcast(queries, count * QUERY_BYTES, MPI_CHAR, 0, MPI_COMM_WORLD);
    return count;
}

static void hand_out(int tasks)
{
    MPI_Status status;
    for (int task = 0, none = -1; task < tasks + ranks - 1; task++) {
        MPI_Recv(NULL, 0, MPI_CHAR, MPI_ANY_SOURCE, ASKED, MPI_COMM_WORLD, &status);
        MPI_Send(task < tasks ? &task : &none, 1, MPI_INT, status.MPI_SOURCE, TASK, MPI_COMM_WORLD);
    }
}

/* Fragments overlap by the length of a query. */
static void search(MPI_File database, MPI_File results, const char *query, int task)
{
    static char *letters, line[LINE_BYTES + 1];
    static MPI_Offset held = -1;
    MPI_Offset size = size_of(database), part = (size + FRAGMENTS - 1) / FRAGMENTS, start = task % FRAGMENTS * part;
    long long first = -1, hits = 0;
    int length = 0;
    if (held != start) {
        MPI_Status status;
        letters = realloc(letters, part + QUERY_BYTES + 1);
        must(MPI_File_read_at(database, start, letters, (int)part + QUERY_BYTES, MPI_CHAR, &status), "database");
        MPI_Get_count(&status, MPI_CHAR, &length);
        letters[length] = 0;
        held = start;
    }
    for (char *at = letters; (at = strstr(at, query)) && at - letters < part; at++) {
        first = hits++ ? first : start + (at - letters);
    }
    length = snprintf(line, sizeof line, "%d %d %lld %lld", task / FRAGMENTS, task % FRAGMENTS, first, hits);
    memset(line + length, ' ', LINE_BYTES - length);
    line[LINE_BYTES - 1] = '\n';
    must(MPI_File_write_at(results, (MPI_Offset)task * LINE_BYTES, line, LINE_BYTES, MPI_CHAR, MPI_STATUS_IGNORE), "results");
}

int main(int count, char **words)
{
    static char queries[QUERIES_MOST][QUERY_BYTES];
    int done = 0, all[64] = {0};
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (count != 4 || ranks < 2 || ranks > 64)
        must(MPI_ERR_ARG, "blast DATABASE QUERIES RESULTS, with 2 to 64 ranks");
    int tasks = read_queries(words[2], queries) * FRAGMENTS;
    MPI_File database = opened(words[1], MPI_MODE_RDONLY), results = opened(words[3], MPI_MODE_CREATE | MPI_MODE_WRONLY);
    if (!rank)
        hand_out(tasks);
    for (int task = 0; rank && task >= 0;) {
        MPI_Send(NULL, 0, MPI_CHAR, 0, ASKED, MPI_COMM_WORLD);
        MPI_Recv(&task, 1, MPI_INT, 0, TASK, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (task < 0)
            break;
        search(database, results, queries[task / FRAGMENTS], task);
        done++;
    }
    MPI_Gather(&done, 1, MPI_INT, all, 1, MPI_INT, 0, MPI_COMM_WORLD);
    must(MPI_File_close(&results), "close");
    must(MPI_File_close(&database), "close");
    for (int i = 1; !rank && i < ranks; i++)
        printf("worker %d: %d pairs\n", i, all[i]);
    MPI_Finalize();
    return 0;
}
