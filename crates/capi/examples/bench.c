/* bench open NAME COUNT: microseconds of gass_open() and gass_close() of a file that is here: median, and 99 of 100.
 * bench put NAME COUNT BYTES: small puts a second, to the end of godwit_commit(). */

#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "godwit.h"

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static int compare(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static int failed(void)
{
    fprintf(stderr, "bench: %s\n", godwit_strerror());
    return 1;
}

static int opens(const char *name, long count)
{
    double *took = calloc((size_t)count, sizeof *took);
    if (took == NULL)
        return 1;
    for (long i = -100; i < count; i++) { /* the first hundred are not counted */
        double begun = now();
        int fd = gass_open(name, O_RDONLY);
        if (fd < 0 || gass_close(fd) != 0)
            return failed();
        if (i >= 0)
            took[i] = now() - begun;
    }
    qsort(took, (size_t)count, sizeof *took, compare);
    printf("open+close median_us %.1f p99_us %.1f count %ld\n", took[count / 2] * 1e6,
           took[count * 99 / 100] * 1e6, count);
    free(took);
    return 0;
}

static int puts_(const char *name, long count, size_t bytes)
{
    char *data = malloc(bytes);
    if (data == NULL)
        return 1;
    memset(data, 'x', bytes);
    double begun = now();
    for (long i = 0; i < count; i++)
        if (godwit_put(name, (uint64_t)i * bytes, bytes, data) != 0)
            return failed();
    double put = now() - begun;
    if (godwit_commit(-1) != 0)
        return failed();
    double committed = now() - begun;
    printf("puts_per_s %.0f committed_per_s %.0f count %ld bytes %zu\n", (double)count / put,
           (double)count / committed, count, bytes);
    free(data);
    return 0;
}

int main(int count, char **words)
{
    if (count == 4 && strcmp(words[1], "open") == 0 && atol(words[3]) > 0)
        return opens(words[2], atol(words[3]));
    if (count == 5 && strcmp(words[1], "put") == 0 && atol(words[3]) > 0 && atol(words[4]) > 0)
        return puts_(words[2], atol(words[3]), (size_t)atol(words[4]));
    fprintf(stderr, "usage: bench open NAME COUNT | bench put NAME COUNT BYTES\n");
    return 2;
}
