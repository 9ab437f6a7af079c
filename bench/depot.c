/* What programs do with libgodwit, timed from within. Built and run by depot-open, depot-puts, depot-lines and depot-readers.
 *
 *   depot open URL                  opens, reads to the end, closes
 *   depot open-close URL N          opens and closes a file that is here, N times: microseconds, median, 99th of a hundred, most
 *   depot puts URL N BYTES          N small puts one behind the other, then a commit: puts a second
 *   depot lines URL WRITERS LINES   WRITERS processes append LINES lines each: lines a second
 *
 * Results are one line of JSON. -DPRETEND compiles it without the library, on plain files whose path follows the scheme: to see that it works.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef PRETEND
static const char *plain(const char *url) { const char *p = strstr(url, "://"); return p ? p + 3 : url; }
static int gass_open(const char *url, int flags, mode_t mode) { return open(plain(url), flags, mode); }
static int gass_close(int fd) { return close(fd); }
static int godwit_put(const char *url, uint64_t offset, size_t length, const void *data) {
    static int fd = -1;
    if (fd < 0)
        fd = open(plain(url), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    return pwrite(fd, data, length, offset) < 0 ? -1 : 0;
}
static int godwit_commit(int timeout_ms) { (void)timeout_ms; return 0; }
static const char *godwit_strerror(void) { return strerror(errno); }
#else
#include <godwit.h>
#endif

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void die(const char *what) {
    fprintf(stderr, "depot: %s: %s\n", what, godwit_strerror());
    exit(1);
}

static int by_size(const void *a, const void *b) {
    double d = *(const double *)a - *(const double *)b;
    return (d > 0) - (d < 0);
}

static void read_all(const char *url) {
    static char some[1 << 20];
    int fd = gass_open(url, O_RDONLY, 0);
    if (fd < 0)
        die(url);
    ssize_t came;
    uint64_t total = 0;
    while ((came = read(fd, some, sizeof some)) > 0)
        total += came;
    if (came < 0 || gass_close(fd))
        die(url);
    printf("{\"bytes\": %llu}\n", (unsigned long long)total);
}

static void open_close(const char *url, long n) {
    double *each = malloc(n * sizeof *each);
    for (long i = -10; i < n; i++) { /* the first ten are not counted: somebody has to connect */
        double began = now();
        int fd = gass_open(url, O_RDONLY, 0);
        if (fd < 0 || gass_close(fd))
            die(url);
        if (i >= 0)
            each[i] = (now() - began) * 1e6;
    }
    qsort(each, n, sizeof *each, by_size);
    printf("{\"median_us\": %.2f, \"p99_us\": %.2f, \"most_us\": %.2f}\n", each[n / 2], each[n * 99 / 100], each[n - 1]);
}

static void puts_(const char *url, long n, size_t length) {
    char *data = malloc(length);
    memset(data, 'p', length);
    double began = now();
    for (long i = 0; i < n; i++) {
        memcpy(data, &i, sizeof i < length ? sizeof i : length);
        if (godwit_put(url, (uint64_t)i * length, length, data) < 0)
            die(url);
    }
    double taken = now();
    if (godwit_commit(60000))
        die("commit");
    double done = now();
    printf("{\"seconds\": %.5f, \"puts_s\": %.0f, \"commit_s\": %.5f}\n", done - began, n / (done - began), done - taken);
}

static void lines(const char *url, int writers, int each) {
    double began = now();
    for (int w = 0; w < writers; w++)
        if (fork() == 0) {
            int fd = gass_open(url, O_WRONLY | O_CREAT | O_APPEND, 0644);
            if (fd < 0)
                die(url);
            for (int i = 0; i < each; i++) {
                char line[64];
                int length = snprintf(line, sizeof line, "%04d %06d a line of some length that says what was done\n", w, i);
                if (write(fd, line, length) != length)
                    die("write");
            }
            if (gass_close(fd))
                die("close");
            _exit(0);
        }
    int bad = 0, status;
    while (wait(&status) > 0)
        bad += status != 0;
    if (bad)
        exit(1);
    double took = now() - began;
    printf("{\"seconds\": %.5f, \"lines_s\": %.0f}\n", took, writers * each / took);
}

int main(int count, char **words) {
    if (count == 3 && !strcmp(words[1], "open"))
        read_all(words[2]);
    else if (count == 4 && !strcmp(words[1], "open-close"))
        open_close(words[2], atol(words[3]));
    else if (count == 5 && !strcmp(words[1], "puts"))
        puts_(words[2], atol(words[3]), atol(words[4]));
    else if (count == 5 && !strcmp(words[1], "lines"))
        lines(words[2], atoi(words[3]), atoi(words[4]));
    else {
        fprintf(stderr, "usage: see the head of depot.c\n");
        return 2;
    }
    return 0;
}
