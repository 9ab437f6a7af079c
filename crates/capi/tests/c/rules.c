/* One function for each rule that tests/library.rs holds: `rules NAME` runs it, and exits with 0 if it is kept. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "godwit.h"

#define CHECK(what)                                                                                     \
    do {                                                                                                \
        if (!(what)) {                                                                                  \
            fprintf(stderr, "%s:%d: not so: %s (errno %d; %s)\n", __FILE__, __LINE__, #what, errno, \
                    godwit_strerror());                                                                 \
            exit(1);                                                                                    \
        }                                                                                               \
    } while (0)

#define FAILS(call, number)                                                                             \
    do {                                                                                                \
        errno = 0;                                                                                      \
        long long outcome = (long long)(call);                                                          \
        CHECK(outcome == -1);                                                                           \
        CHECK(errno == (number));                                                                       \
        CHECK(godwit_error() == (number));                                                              \
        CHECK(strncmp(godwit_strerror(), "cannot ", 7) == 0);                                           \
    } while (0)

#define RUN "godwit://lab/run7"

static void is(int fd, const char *expected)
{
    char text[256] = {0};
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    CHECK(read(fd, text, sizeof text - 1) == (ssize_t)strlen(expected));
    CHECK(strcmp(text, expected) == 0);
}

/* All that works on a descriptor of open(2) works on one of gass_open(). */
static void descriptors(void)
{
    int fd = gass_open(RUN, O_RDONLY);
    CHECK(fd > 2);
    is(fd, "hello world");
    CHECK(lseek(fd, 6, SEEK_SET) == 6);
    char word[6] = {0};
    CHECK(read(fd, word, 5) == 5 && strcmp(word, "world") == 0);
    struct stat stat;
    CHECK(fstat(fd, &stat) == 0 && S_ISREG(stat.st_mode) && stat.st_size == 11);
    char *mapped = mmap(NULL, 11, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(mapped != MAP_FAILED && memcmp(mapped, "hello world", 11) == 0);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    CHECK(select(fd + 1, &set, NULL, NULL, NULL) == 1);
    CHECK(write(fd, "x", 1) == -1 && errno == EBADF);
    CHECK((fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0);
    CHECK(gass_close(fd) == 0);
    CHECK(read(fd, word, 1) == -1 && errno == EBADF);
    fd = gass_open("/godwit/lab/run7", O_RDONLY | O_CLOEXEC);
    CHECK(fd > 2 && (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    CHECK(gass_close(fd) == 0);
}

/* Names that are not of other machines are open(2)'s, and so is what is closed. Nobody is asked. */
static void plain(const char *path)
{
    int fd = gass_open(path, O_RDWR | O_CREAT | O_EXCL, 0640);
    CHECK(fd >= 0);
    struct stat stat;
    CHECK(fstat(fd, &stat) == 0 && (stat.st_mode & 0777) == 0640);
    CHECK(write(fd, "plain", 5) == 5);
    CHECK(gass_close(fd) == 0);
    FAILS(gass_open(path, O_RDWR | O_CREAT | O_EXCL, 0640), EEXIST);
    FAILS(gass_open("/no/such/file", O_RDONLY), ENOENT);
    CHECK(strstr(godwit_strerror(), "/no/such/file") != NULL);
    FAILS(gass_close(fd), EBADF);
    char url[512];
    snprintf(url, sizeof url, "file://%s", path);
    FILE *stream = gass_fopen(url, "r");
    char text[6] = {0};
    CHECK(stream != NULL && fread(text, 1, 5, stream) == 5 && strcmp(text, "plain") == 0);
    CHECK(gass_fclose(stream) == 0);
    int ends[2];
    CHECK(pipe(ends) == 0 && gass_close(ends[0]) == 0 && gass_close(ends[1]) == 0);
}

/* What is written is at its target when gass_close() returns. */
static void written(void)
{
    umask(027);
    int fd = gass_open("godwit://lab/new", O_WRONLY | O_CREAT | O_TRUNC, 0666);
    CHECK(fd >= 0 && write(fd, "first", 5) == 5);
    CHECK(gass_close(fd) == 0);
    fd = gass_open("godwit://lab/new", O_RDWR);
    is(fd, "first");
    CHECK(pwrite(fd, "F", 1, 0) == 1);
    CHECK(gass_close(fd) == 0);
    FAILS(gass_open("godwit://lab/new", O_RDWR | O_CREAT | O_EXCL, 0666), EEXIST);
    FILE *stream = gass_fopen("godwit://lab/by-stdio", "w");
    CHECK(stream != NULL && fprintf(stream, "%d lines", 3) == 7);
    CHECK(gass_fclose(stream) == 0);
    fd = gass_open("godwit://lab/thrown-away", O_WRONLY | O_CREAT, 0666);
    CHECK(fd >= 0 && write(fd, "x", 1) == 1 && godwit_close(fd, GODWIT_DISCARD) == 0);
    fd = gass_open("godwit://lab/committed", O_WRONLY | O_CREAT, 0666);
    CHECK(fd >= 0 && godwit_close(fd, GODWIT_COMMIT) == 0);
    FAILS(godwit_close(0, 77), EINVAL);
}

/* What the node says is what the program is told. */
static void failures(void)
{
    FAILS(gass_open("godwit://lab/none", O_RDONLY), ENOENT);
    CHECK(strcmp(godwit_error_name(), "ENOENT") == 0);
    CHECK(godwit_error_passes() == 0);
    FAILS(gass_open("godwit://far/x", O_RDONLY), EHOSTUNREACH);
    FAILS(gass_open("godwit://closed/x", O_RDONLY), EACCES);
    FAILS(gass_open("godwit://full/x", O_RDONLY), EDQUOT);
    CHECK(gass_fopen("godwit://lab/none", "r") == NULL && errno == ENOENT);
    CHECK(gass_fopen(RUN, "?") == NULL && errno == EINVAL);
    FAILS(gass_open(NULL, O_RDONLY), EINVAL);
    FAILS(gass_open(RUN, O_RDWR | O_APPEND), EINVAL);
    FAILS(gass_open(RUN, O_RDONLY | O_DIRECTORY), EOPNOTSUPP);
    char text[4];
    FAILS(gass_get("/etc/passwd", 0, text, 4), EINVAL);
    FAILS(gass_get(RUN, UINT64_MAX, text, 4), EINVAL);
    FAILS(gass_get(RUN, 0, NULL, 4), EINVAL);
    FAILS(godwit_put("godwit://lab/x", INT64_MAX, 1, "x"), EINVAL);
    FAILS(godwit_result(4711), EINVAL);
    FAILS(godwit_wait(4711, 0), EINVAL);
    FAILS(godwit_cancel(4711), EINVAL);
    char *name = malloc(20000);
    memset(name, 'x', 19999);
    name[19999] = 0;
    memcpy(name, "ftp://lab/", 10);
    FAILS(gass_open(name, O_RDONLY), ENAMETOOLONG);
    free(name);
    CHECK(gass_open(RUN, O_RDONLY) >= 0); /* and nothing of that is in the way */
}

/* A write-back that fails is told by close; the descriptor is closed all the same, and the copy kept. */
static void refused(void)
{
    int fd = gass_open("godwit://lab/refused", O_WRONLY | O_CREAT, 0644);
    CHECK(fd >= 0 && write(fd, "bytes", 5) == 5);
    FAILS(gass_close(fd), ECONNABORTED);
    CHECK(strstr(godwit_hint(), "kept") != NULL);
    CHECK(write(fd, "x", 1) == -1 && errno == EBADF);
    setenv("GODWIT_CLOSE", "commit", 1);
    fd = gass_open("godwit://lab/refused", O_WRONLY | O_CREAT, 0644);
    CHECK(fd >= 0 && write(fd, "other", 5) == 5 && gass_close(fd) == 0);
    setenv("GODWIT_CLOSE", "never", 1);
    FAILS(gass_open("godwit://lab/refused", O_WRONLY), EINVAL);
    CHECK(strstr(godwit_strerror(), "GODWIT_CLOSE") != NULL);
    unsetenv("GODWIT_CLOSE");
    /* What stdio still has cannot be written: half a file is not delivered. */
    struct rlimit limit = {4, 4};
    signal(SIGXFSZ, SIG_IGN);
    FILE *stream = gass_fopen("godwit://lab/half", "w");
    CHECK(stream != NULL && fprintf(stream, "longer than that") > 4);
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    errno = 0;
    CHECK(gass_fclose(stream) == EOF && errno == EFBIG);
}

/* What was closed by close(2) is delivered at the end; what is open still is not. */
static void left(void)
{
    int fd = gass_open("godwit://lab/closed", O_WRONLY | O_CREAT, 0644);
    CHECK(fd >= 0 && write(fd, "whole", 5) == 5 && close(fd) == 0);
    int open = gass_open("godwit://lab/open", O_WRONLY | O_CREAT, 0644);
    /* Its number is used again: the other is given back now. */
    CHECK(open == fd && write(open, "half", 4) == 4);
    int other = gass_open("godwit://lab/other", O_WRONLY | O_CREAT, 0644);
    CHECK(other >= 0 && write(other, "whole", 5) == 5 && close(other) == 0);
}

/* A file is given back once, with the last of the descriptors that dup(2) made; what writes is not waited for before. */
static void copies(void)
{
    int fd = gass_open("godwit://lab/dup", O_WRONLY | O_CREAT, 0644);
    int other = dup(fd);
    CHECK(other >= 0 && write(fd, "one ", 4) == 4);
    CHECK(gass_close(fd) == 0);
    CHECK(write(other, "two", 3) == 3);
    CHECK(gass_close(other) == 0);
    /* Closed behind our back, and the number is another's: that one is only closed. */
    fd = gass_open(RUN, O_RDONLY);
    CHECK(fd >= 0 && close(fd) == 0);
    int null = open("/dev/null", O_RDONLY);
    CHECK(null == fd && gass_close(null) == 0);
    CHECK(read(null, &fd, 1) == -1 && errno == EBADF);
    fd = gass_open("godwit://lab/closed", O_WRONLY | O_CREAT, 0644);
    CHECK(fd >= 0 && close(fd) == 0);
    null = open("/dev/null", O_RDONLY);
    CHECK(null == fd && gass_close(null) == 0); /* without waiting for what the other wrote */
    /* Two openings are two. */
    int one = gass_open(RUN, O_RDONLY), two = gass_open(RUN, O_RDONLY);
    CHECK(one >= 0 && two >= 0 && gass_close(one) == 0 && gass_close(two) == 0);
}

/* A child has a conversation of its own, and closes what is its parent's as close(2) does. */
static void forked(void)
{
    int fd = gass_open("godwit://lab/forked", O_WRONLY | O_CREAT, 0644);
    CHECK(fd >= 0 && write(fd, "parent ", 7) == 7);
    CHECK(godwit_put("godwit://lab/puts", 0, 3, "abc") == 0);
    CHECK(godwit_put("godwit://lab/puts", 3, 3, "def") == 0);
    pid_t child = fork();
    if (child == 0) {
        CHECK(write(fd, "child", 5) == 5);
        CHECK(gass_close(fd) == 0);
        int own = gass_open(RUN, O_RDONLY);
        CHECK(own >= 0);
        is(own, "hello world");
        CHECK(gass_close(own) == 0);
        CHECK(godwit_commit(-1) == 0);
        CHECK(godwit_put("godwit://lab/of-the-child", 0, 5, "child") == 0);
        exit(0); /* which sends its puts, and not again those of its parent */
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(gass_close(fd) == 0);
    CHECK(godwit_commit(-1) == 0);
    /* A child that calls nothing does not keep the parent's conversation open. */
    child = fork();
    if (child == 0) {
        for (int i = 0; i < 3; i++)
            close(i);
        alarm(60); /* if the test does not end it */
        pause();
        _exit(1);
    }
    printf("%d\n", child);
    fflush(stdout);
    char byte;
    CHECK(read(0, &byte, 1) == 0); /* until the test has seen enough */
    kill(getpid(), SIGKILL);
}

static void *reads(void *nothing)
{
    (void)nothing;
    for (int i = 0; i < 200; i++) {
        int fd = gass_open(RUN, O_RDONLY);
        CHECK(fd >= 0);
        is(fd, "hello world");
        CHECK(gass_close(fd) == 0);
        char text[5];
        CHECK(gass_get(RUN, 6, text, 5) == 5 && memcmp(text, "world", 5) == 0);
        FAILS(gass_open("godwit://lab/none", O_RDONLY), ENOENT);
    }
    return NULL;
}

static void *waits(void *name)
{
    int fd = gass_open(name, O_RDONLY);
    CHECK(fd >= 0 && gass_close(fd) == 0);
    return NULL;
}

/* Threads do not wait for each other's answers, and none is lost. */
static void threads(void)
{
    pthread_t slow, all[8];
    CHECK(pthread_create(&slow, NULL, waits, "godwit://slow/x") == 0);
    for (int i = 0; i < 8; i++)
        CHECK(pthread_create(&all[i], NULL, reads, NULL) == 0);
    for (int i = 0; i < 8; i++)
        CHECK(pthread_join(all[i], NULL) == 0);
    printf("fast\n");
    fflush(stdout);
    CHECK(pthread_join(slow, NULL) == 0);
}

static int threads_here(void)
{
    FILE *status = fopen("/proc/self/status", "r");
    char line[256];
    int threads = 0;
    while (fgets(line, sizeof line, status) != NULL)
        sscanf(line, "Threads: %d", &threads);
    fclose(status);
    return threads;
}

/* The library has no threads, and leaves signals alone. */
static void quiet(void)
{
    struct sigaction before[65], after;
    int was_open[64];
    for (int i = 0; i < 64; i++)
        was_open[i] = fcntl(i, F_GETFD) != -1;
    for (int i = 1; i < 65; i++)
        sigaction(i, NULL, &before[i]);
    CHECK(godwit_put("godwit://lab/puts", 0, 3, "abc") == 0 && godwit_commit(-1) == 0);
    int fd = gass_open(RUN, O_RDONLY);
    CHECK(fd >= 0 && gass_close(fd) == 0);
    for (int i = 1; i < 65; i++) {
        sigaction(i, NULL, &after);
        CHECK(after.sa_handler == before[i].sa_handler);
    }
    CHECK(threads_here() == 1);
    CHECK(godwit_fd() > 2);
    for (int open = 3; open < 64; open++) {
        int flags = fcntl(open, F_GETFD);
        CHECK(was_open[open] || flags == -1 || (flags & FD_CLOEXEC) != 0);
    }
    CHECK(godwit_api_version() == GODWIT_API_VERSION);
}

/* The node ends while something is under way. */
static void dies(void)
{
    char text[4];
    godwit_op op = gass_get_begin("godwit://lab/dies", 0, text, 4, NULL);
    CHECK(op > 0 && godwit_wait(op, -1) == 0);
    FAILS(godwit_result(op), ECONNRESET);
}

/* What is only read is asked of the next node. */
static void again(void)
{
    char text[5];
    CHECK(godwit_put("godwit://lab/puts", 0, 3, "abc") == 0);
    CHECK(gass_get(RUN, 6, text, 5) == 5 && memcmp(text, "world", 5) == 0);
    /* But not what was put, and is with a node that is gone. */
    FAILS(godwit_get("godwit://lab/puts", 0, 3, text), ECONNRESET);
    FAILS(godwit_commit(-1), ECONNRESET);
}

/* What was being written the next node has. */
static void survives(void)
{
    int fd = gass_open("godwit://lab/written", O_WRONLY | O_CREAT, 0644);
    CHECK(fd >= 0 && write(fd, "whole", 5) == 5);
    int none = gass_open("godwit://lab/given-up", O_WRONLY | O_CREAT, 0644);
    CHECK(none >= 0 && write(none, "half", 4) == 4);
    dies();
    CHECK(godwit_close(none, GODWIT_DISCARD) == 0);
    CHECK(gass_close(fd) == 0);
    CHECK(godwit_commit(-1) == 0 && godwit_push(NULL, -1) == 0);
}

/* The node goes away: what was not committed is told to be lost once, and then it goes on. */
static void lost(void)
{
    CHECK(godwit_put("godwit://lab/puts", 0, 3, "abc") == 0);
    int fd = gass_open("godwit://lab/held", O_WRONLY | O_CREAT, 0644);
    CHECK(fd >= 0 && write(fd, "x", 1) == 1);
    int reading = gass_open(RUN, O_RDONLY);
    CHECK(reading >= 0);
    dies();
    CHECK(godwit_error_passes() == 1);
    is(reading, "hello world");
    CHECK(gass_close(reading) == 0);
    FAILS(gass_close(fd), ECONNRESET);
    FAILS(godwit_commit(-1), ECONNRESET);
    CHECK(godwit_commit(-1) == 0);
    CHECK(godwit_put("godwit://lab/puts", 0, 3, "new") == 0);
    CHECK(godwit_commit(-1) == 0);
    CHECK(godwit_push(NULL, -1) == 0);
}

/* The same for what was closed, and not waited for. */
static void lost_behind(void)
{
    int fd = gass_open("godwit://lab/behind", O_WRONLY | O_CREAT, 0644);
    CHECK(fd >= 0 && write(fd, "x", 1) == 1 && godwit_close(fd, GODWIT_NOWAIT) == 0);
    dies();
    FAILS(godwit_commit(-1), ECONNRESET);
    CHECK(godwit_commit(-1) == 0);
    CHECK(godwit_push(NULL, -1) == 0); /* of all that this user owes: of whom it was is not known any more */
}

/* Puts are gathered, arrive in order, and are seen by whoever put them. */
static void puts_(void)
{
    char text[100] = {0}, byte;
    for (int i = 0; i < 300000; i++) {
        byte = (char)('a' + i % 26);
        CHECK(godwit_put("godwit://lab/puts", (uint64_t)(i % 1000), 1, &byte) == 0);
    }
    CHECK(godwit_put("godwit://lab/puts", 0, 2, "ZZ") == 0); /* which is gathered still */
    CHECK(godwit_get("godwit://lab/puts", 0, 3, text) == 3);
    CHECK(text[0] == 'Z' && text[2] == 'a' + 299002 % 26);
    CHECK(godwit_get("godwit://lab/puts", 990, 100, text) == 10); /* short at the end */
    CHECK(godwit_commit(-1) == 0);
    CHECK(godwit_put("godwit://lab/puts", 5000000, 0, NULL) == 0);
    char *large = calloc(1, 9000001);
    large[9000000] = 'z';
    CHECK(godwit_put("godwit://lab/puts", 10, 9000001, large) == 0);
    free(large);
    CHECK(godwit_push("godwit://lab/puts", 1000) == 0);
    CHECK(godwit_put("godwit://lab/at-exit", 0, 4, "last") == 0);
    CHECK(godwit_put("godwit://lab/at-exit", 4, 4, "word") == 0);
    FAILS(godwit_push("godwit://lab/refused", 0), EACCES);
    FAILS(godwit_put("godwit://full/x", 0, 1, "x"), EDQUOT);
}


/* What goes on while the program does something else. */
static void asynchronous(void)
{
    char one[5] = {0}, two[5] = {0};
    godwit_op slow = gass_get_begin("godwit://slow/x", 0, one, 5, NULL);
    godwit_op fast = gass_get_begin(RUN, 6, two, 5, NULL);
    CHECK(slow > 0 && fast > 0);
    FAILS(godwit_result(slow), EINPROGRESS);
    struct pollfd polled = {.fd = godwit_fd(), .events = POLLIN, .revents = 0};
    godwit_op ended[4];
    int count = 0;
    while (count == 0) {
        CHECK(poll(&polled, 1, 30000) == 1);
        count = godwit_poll(ended, 4, 0);
    }
    CHECK(count == 1 && ended[0] == fast && memcmp(two, "world", 5) == 0);
    CHECK(godwit_result(fast) == 5);
    FAILS(godwit_result(fast), EINVAL);
    CHECK(godwit_poll(ended, 4, 0) == 0);
    CHECK(poll(&polled, 1, 0) == 0); /* nothing is to be done: it does not say so in vain */
    FAILS(godwit_wait(slow, 10), ETIMEDOUT);
    uint64_t done, total;
    CHECK(godwit_progress(slow, &done, &total) == 0 && done == 0 && total == UINT64_MAX);
    CHECK(godwit_cancel(slow) == 0);
    FAILS(godwit_result(slow), EINVAL);

    /* Put, in units; then got into a descriptor. */
    size_t size = 5u << 20;
    char *large = malloc(size);
    for (size_t i = 0; i < size; i++)
        large[i] = (char)(i * 7 / 3);
    struct godwit_options options = {.size = sizeof options, .unit_bytes = 1 << 16, .how = GODWIT_COMMIT};
    godwit_op put = gass_put_begin("godwit://lab/large", large, size, &options);
    int turns = 0;
    uint64_t before = 0;
    while (godwit_poll(ended, 4, 0) == 0) {
        CHECK(godwit_progress(put, &done, &total) == 0 && total == size && done >= before);
        CHECK(done - before <= 1 << 16);
        before = done;
        turns++;
        CHECK(poll(&polled, 1, 30000) == 1);
    }
    CHECK(turns >= 80 && godwit_result(put) == (int64_t)size);
    FILE *file = tmpfile();
    godwit_op get = gass_get_file_begin("godwit://lab/large", 10, UINT64_MAX, fileno(file), NULL);
    CHECK(godwit_wait(get, -1) == 0 && godwit_result(get) == (int64_t)size - 10);
    char *back = mmap(NULL, size - 10, PROT_READ, MAP_SHARED, fileno(file), 0);
    CHECK(back != MAP_FAILED && memcmp(back, large + 10, size - 10) == 0);
    memset(large, 0, size);
    CHECK(gass_get("godwit://lab/large", 10, large, size) == (int64_t)size - 10);
    CHECK(memcmp(back, large, size - 10) == 0);
    rewind(file);
    put = gass_put_file_begin("godwit://lab/from-file", fileno(file), NULL);
    CHECK(godwit_wait(put, -1) == 0 && godwit_result(put) == (int64_t)size - 10);
    fclose(file);

    /* In the middle of a put nothing is published. */
    put = gass_put_begin("godwit://lab/half", large, size, &options);
    for (int i = 0; i < 3; i++)
        godwit_poll(ended, 4, 0);
    CHECK(godwit_cancel(put) == 0);
    /* An opening that is taken back is closed, also if it was opened all the same. */
    put = gass_put_begin("godwit://lab/half", large, size, &options);
    CHECK(godwit_cancel(put) == 0);
    CHECK(gass_append("godwit://lab/log", "line\n", 5, GODWIT_COMMIT) == 5);
    FAILS(gass_append("godwit://lab/log", large, size, 0), EFBIG);
    free(large);

    struct godwit_memory memory;
    CHECK(gass_memory(RUN, &memory) == 0 && memory.size == 11);
    CHECK(memcmp(memory.data, "hello world", 11) == 0);
    CHECK(fcntl(memory.fd, F_GETFD) & FD_CLOEXEC);
    CHECK(ftruncate(memory.fd, 0) == -1);
    CHECK(godwit_memory_free(&memory) == 0);
    godwit_op op = gass_memory_begin("godwit://lab/empty", NULL);
    CHECK(godwit_wait(op, -1) == 0 && godwit_memory_result(op, &memory) == 0 && memory.size == 0);
    CHECK(godwit_memory_free(&memory) == 0);
    op = gass_memory_begin("godwit://lab/none", NULL);
    CHECK(godwit_poll(ended, 4, -1) == 1 && ended[0] == op);
    FAILS(godwit_result(op), ENOENT);
    options.tag = "job";
    op = gass_stage_begin(RUN, &options);
    CHECK(godwit_wait(op, -1) == 0 && godwit_result(op) == 11);
    CHECK(gass_unstage(RUN, "job") == 0);
    struct godwit_stat stat;
    CHECK(godwit_stat(RUN, &stat) == 0 && stat.size == 11 && stat.mtime_ns == -1);
}

static int listed(void *context, const char *url, const char *const *tags, const struct gass_cache_entry *entry)
{
    char *all = context;
    strcat(all, url);
    for (; *tags != NULL; tags++) {
        strcat(all, " ");
        strcat(all, *tags);
    }
    CHECK(entry->fd == -1);
    strcat(all, ";");
    return 0;
}

static void *adds_later(void *on)
{
    struct gass_cache_entry entry;
    CHECK(gass_cache_add(on, "godwit://lab/a", "later", &entry) == GASS_CACHE_EXISTS);
    CHECK(entry.has_timestamp && entry.timestamp == 42);
    is(entry.fd, "filled");
    close(entry.fd);
    CHECK(gass_cache_add_done(on, "godwit://lab/a", 43) == 0);
    return NULL;
}

/* The paper's cache interface. */
static void cache(void)
{
    gass_cache *cache = gass_cache_open(NULL), *other = gass_cache_open("");
    CHECK(cache != NULL && other != NULL);
    CHECK(gass_cache_open("/nowhere") == NULL && errno == EINVAL);
    struct gass_cache_entry entry;
    FAILS(gass_cache_delete_start(cache, "godwit://lab/a", &entry), ENOENT);
    CHECK(gass_cache_add(cache, "godwit://lab/a", "job", &entry) == GASS_CACHE_NEW);
    char path[32] = "untouched";
    CHECK(gass_cache_path(cache, "godwit://lab/a", path, 14) == 14 && strcmp(path, "untouched") == 0);
    CHECK(gass_cache_path(cache, "godwit://lab/a", path, 15) == 14 && strcmp(path, "/where/it/lies") == 0);
    FAILS(gass_cache_path(other, "godwit://lab/a", path, 32), EINVAL);
    FAILS(gass_cache_add(cache, "godwit://lab/a", "job", &entry), EBUSY);
    CHECK(write(entry.fd, "filled", 6) == 6 && close(entry.fd) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, adds_later, other) == 0);
    CHECK(gass_cache_add_done(cache, "godwit://lab/a", 42) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    FAILS(gass_cache_add_done(cache, "godwit://lab/a", 42), EINVAL);
    CHECK(gass_cache_query(cache, "godwit://lab/a", &entry) == 0);
    CHECK(entry.tags == 2 && entry.timestamp == 43 && entry.size == 6 && entry.is_whole);
    FAILS(gass_cache_query(cache, "godwit://lab/b", &entry), ENOENT);
    CHECK(gass_cache_add(cache, "godwit://lab/b", "job", &entry) == GASS_CACHE_NEW);
    CHECK(close(entry.fd) == 0 && gass_cache_add_failed(cache, "godwit://lab/b") == 0);
    char all[256] = "";
    CHECK(gass_cache_list(cache, "godwit://lab/", listed, all) == 1);
    CHECK(strcmp(all, "godwit://lab/a job later;") == 0);
    CHECK(gass_cache_delete_start(cache, "godwit://lab/a", &entry) == 0 && entry.timestamp == 43);
    CHECK(gass_cache_delete(cache, "godwit://lab/a", "job") == 0);
    FAILS(gass_cache_delete(cache, "godwit://lab/a", "job"), ENODATA);
    FAILS(gass_cache_delete(cache, "godwit://lab/b", "job"), ENOENT);
    CHECK(gass_cache_cleanup_tag(cache, "godwit://lab/a", "none") == 0);
    CHECK(gass_cache_cleanup_tag_all(cache, "later") == 0);
    all[0] = 0;
    CHECK(gass_cache_list(cache, NULL, listed, all) == 1 && strcmp(all, "godwit://lab/a;") == 0);
    /* What was added and not done is given up. */
    CHECK(gass_cache_add(cache, "godwit://lab/c", "job", &entry) == GASS_CACHE_NEW);
    close(entry.fd);
    CHECK(gass_cache_close(cache) == 0 && gass_cache_close(other) == 0);
    gass_cache *peer = gass_cache_open("peer:fermi");
    CHECK(peer != NULL);
    FAILS(gass_cache_add(peer, "godwit://lab/a", "x", &entry), EOPNOTSUPP);
    CHECK(gass_cache_close(peer) == 0);
}

/* A stream to the end of a file: each write goes at once. */
static void stream(void)
{
    int fd = gass_open("godwit://lab/log", O_WRONLY | O_APPEND | O_CREAT, 0644);
    CHECK(fd >= 0 && write(fd, "one\n", 4) == 4);
    printf("written\n");
    fflush(stdout);
    char byte;
    CHECK(read(0, &byte, 1) == 0);
    CHECK(write(fd, "two\n", 4) == 4 && gass_close(fd) == 0);
    FILE *log = gass_fopen("godwit://lab/log", "a");
    CHECK(log != NULL && fprintf(log, "three\n") == 6 && gass_fclose(log) == 0);
}

/* What a node tells wrongly is not believed: no byte beyond a buffer, no memory that others could cut. */
static void lies(void)
{
    char text[8] = "1234567";
    FAILS(gass_get(RUN, 2, text, 4), EPROTONOSUPPORT);
    CHECK(strcmp(text, "1234567") == 0);
    struct godwit_memory memory;
    FAILS(gass_memory(RUN, &memory), EPROTONOSUPPORT);
}

int main(int count, char **words)
{
    const struct {
        const char *name;
        void (*run)(void);
    } rules[] = {
        {"descriptors", descriptors}, {"written", written}, {"failures", failures},
        {"refused", refused},         {"copies", copies},   {"forked", forked},
        {"threads", threads},         {"quiet", quiet},     {"lost", lost},
        {"puts", puts_},              {"asynchronous", asynchronous},
        {"cache", cache},             {"stream", stream},   {"left", left},     {"lies", lies},
        {"lost_behind", lost_behind}, {"again", again},
        {"survives", survives},
    };
    if (count == 3 && strcmp(words[1], "plain") == 0) {
        plain(words[2]);
        return 0;
    }
    for (size_t i = 0; count == 2 && i < sizeof rules / sizeof *rules; i++) {
        if (strcmp(words[1], rules[i].name) == 0) {
            rules[i].run();
            CHECK(threads_here() == 1); /* whatever was called, none was started */
            return 0;
        }
    }
    fprintf(stderr, "usage: rules RULE\n");
    return 2;
}
