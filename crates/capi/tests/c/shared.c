/* shared NAME: two handles of one session, as two programs of a machine have them. Prints each step that is wrong. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "godwit.h"

static int wrong;

#define CHECK(that)                                                                                                    \
    do {                                                                                                               \
        if (!(that)) {                                                                                                 \
            wrong = 1;                                                                                                 \
            printf("line %d: %s: %s\n", __LINE__, #that, godwit_strerror());                                           \
        }                                                                                                              \
    } while (0)

static void write_at(int file, const char *bytes, uint64_t at)
{
    struct godwit_range range = {at, at + strlen(bytes)};
    CHECK(!godwit_grant(file, &range, 1));
    CHECK(pwrite(godwit_file_fd(file), bytes, strlen(bytes), at) == (ssize_t)strlen(bytes));
    CHECK(!godwit_wrote(file, &range, 1));
}

static void expect(int file, const char *bytes, uint64_t at)
{
    struct godwit_range range = {at, at + strlen(bytes)};
    char found[64] = "";
    CHECK(!godwit_ensure(file, &range, 1));
    CHECK(pread(file, found, strlen(bytes), at) == (ssize_t)strlen(bytes));
    if (memcmp(found, bytes, strlen(bytes))) {
        wrong = 1;
        printf("at %llu: \"%s\" for \"%s\"\n", (unsigned long long)at, found, bytes);
    }
}

/* A name whose file begins with "0123456789". */
static void share(const char *name)
{
    struct godwit_open_options options = {.size = sizeof options, .session = "one"};
    int first = godwit_open(name, O_RDWR, &options), second = godwit_open(name, O_RDWR, &options);
    int alone = godwit_open(name, O_RDWR, NULL), reader = godwit_open(name, O_RDONLY, NULL);
    CHECK(first >= 0 && second >= 0 && alone >= 0 && reader >= 0);
    write_at(first, "AB", 2);
    expect(second, "01AB456789", 0);
    expect(alone, "0123456789", 0);
    write_at(second, "Z", 9);
    CHECK(godwit_sync(second, GODWIT_SYNC_TELL) == 0);
    expect(reader, "0123456789", 0);
    CHECK(godwit_sync(first, GODWIT_SYNC_LOOK) == 3);
    CHECK(godwit_sync(second, 0) == 0);
    CHECK(godwit_sync(alone, GODWIT_SYNC_LOOK) == 0);
    expect(alone, "01AB45678Z", 0);
    CHECK(godwit_sync(reader, GODWIT_SYNC_LOOK) == 0);
    expect(reader, "01AB45678Z", 0);
    struct stat stat;
    CHECK(!godwit_resize(second, 4));
    CHECK(!fstat(first, &stat) && stat.st_size == 4);
    CHECK(godwit_sync(first, 0) == 0);
    struct godwit_file_report report = {.size = sizeof report};
    CHECK(!godwit_file_report(first, &report) && report.delivered == 3 && report.fetched <= 10);
    struct godwit_stat there;
    CHECK(!godwit_stat(name, &there) && there.size == 4);
    CHECK(!godwit_file_close(first) && !godwit_file_close(second) && !godwit_file_close(alone));
    CHECK(!godwit_file_close(reader) && fstat(reader, &stat) && errno == EBADF);
    CHECK(godwit_file_close(first) == -1 && godwit_error() == EBADF);
}

static void make(const char *name)
{
    struct godwit_stat there;
    CHECK(godwit_open(name, O_RDWR, NULL) == -1 && godwit_error() == ENOENT);
    int file = godwit_open(name, O_RDWR | O_CREAT | O_EXCL, NULL);
    CHECK(file >= 0);
    CHECK(!godwit_stat(name, &there) && there.size == 0);
    CHECK(godwit_open(name, O_RDWR | O_CREAT | O_EXCL, NULL) == -1 && godwit_error() == EEXIST);
    write_at(file, "made", 0);
    CHECK(godwit_sync(file, 0) == 4 && !godwit_file_close(file));
    CHECK(!godwit_remove(name));
    CHECK(godwit_stat(name, &there) == -1 && godwit_error() == ENOENT);
    CHECK(godwit_remove(name) == -1 && godwit_error() == ENOENT);
}

int main(int count, char **words)
{
    char word[256], again[256];
    if (count != 3)
        return 2;
    share(words[1]);
    make(words[2]);
    CHECK(godwit_node_name(word, sizeof word) > 0 && godwit_node_name(again, sizeof again) > 0);
    CHECK(!strcmp(word, again));
    printf("%s\n", wrong ? "wrong" : "ok");
    return wrong;
}
