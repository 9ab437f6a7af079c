/* One rank of Figure 3: SIZE bytes in calls of 64 KiB, from open to close.
 *
 *   farm gfarm|plain write|read NAME BYTES   prints seconds, and seconds of this process on a processor
 *   farm gfarm global NAME BYTES             the same for one that reads the whole file
 *   farm gfarm many NAME PROCESSES           the same for processes that read 64 KiB each
 */
#include <fcntl.h>
#include <gfarm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char bytes[64 << 10];

static void check(const char *why) {
    if (why != NULL) {
        fprintf(stderr, "farm: %s\n", why);
        exit(1);
    }
}

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static double cpu(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec)
        + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static void by_gfarm(int writes, int global, char *name, long size) {
    GFS_File file;
    int count = 0;
    check(writes ? gfs_pio_create(name, GFARM_FILE_WRONLY, 0644, &file) : gfs_pio_open(name, GFARM_FILE_RDONLY, &file));
    check(global ? gfs_pio_set_view_global(file, GFARM_FILE_SEQUENTIAL) : gfs_pio_set_view_local(file, GFARM_FILE_SEQUENTIAL));
    for (; size > 0; size -= count) {
        check(writes ? gfs_pio_write(file, bytes, sizeof bytes, &count) : gfs_pio_read(file, bytes, sizeof bytes, &count));
        check(count > 0 ? NULL : "it ends early");
    }
    check(gfs_pio_close(file));
}

static void plainly(int writes, const char *name, long size) {
    int file = open(name, writes ? O_WRONLY | O_CREAT | O_EXCL : O_RDONLY, 0644);
    long count;
    check(file >= 0 ? NULL : "it cannot be opened");
    for (; size > 0; size -= count) {
        count = writes ? write(file, bytes, sizeof bytes) : read(file, bytes, sizeof bytes);
        check(count > 0 ? NULL : "it ends early");
    }
    check(!writes || fdatasync(file) == 0 ? NULL : "it is not durable");
    check(close(file) == 0 ? NULL : "it cannot be closed");
}

/* Processes, 8 at once, of which each opens a file, reads 64 KiB and closes it. */
static void many(char *name, long count) {
    long begun, at;
    int status, bad = 0;
    for (begun = 0, at = 0; at < count; at++) {
        for (; begun < count && begun < at + 8; begun++)
            if (fork() == 0) {
                by_gfarm(0, 0, name, sizeof bytes);
                _exit(0);
            }
        bad |= wait(&status) < 0 || status != 0;
    }
    check(bad ? "a process failed" : NULL);
}

int main(int argc, char **argv) {
    double begun, used;
    int writes, at;
    if (argc != 5)
        return 2;
    for (at = 0; at < (int)sizeof bytes; at++)
        bytes[at] = (char)(at * 31 >> 3);
    writes = strcmp(argv[2], "write") == 0;
    begun = now(), used = cpu();
    if (strcmp(argv[2], "many") == 0)
        many(argv[3], atol(argv[4]));
    else if (strcmp(argv[1], "gfarm") == 0)
        by_gfarm(writes, strcmp(argv[2], "global") == 0, argv[3], atol(argv[4]));
    else
        plainly(writes, argv[3], atol(argv[4]));
    printf("%f %f\n", now() - begun, cpu() - used);
    return 0;
}
