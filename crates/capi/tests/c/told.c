/* told read|write|put|lines NAME [TEXT]: does that, and prints what it was told: "ok …" or the name of the error.
 * told slowly NAME TEXT new|edit|stdio|stream [discard]: writes half, says so, and the rest when its input ends; told reading NAME.
 * told memory|stat|transfers|stamp|hold NAME; told discard|half|private|fill NAME TEXT; told untag NAME TAG; told copy NAME NAME. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "godwit.h"

static int says(long long outcome)
{
    if (outcome >= 0)
        printf("ok %lld\n", outcome);
    else
        printf("%s %d\n%s\n%s\n", godwit_error_name(), errno == godwit_error(), godwit_strerror(), godwit_hint());
    return 0;
}

/* The other side does something meanwhile. */
static void pauses(const char *word)
{
    char byte;
    printf("%s\n", word);
    fflush(stdout);
    while (read(0, &byte, 1) > 0) {
    }
}

static int slowly(const char *name, const char *text, const char *how, int is_discarded)
{
    size_t length = strlen(text), half = length / 2;
    if (strcmp(how, "stdio") == 0) {
        FILE *stream = gass_fopen(name, "w");
        if (stream == NULL || fwrite(text, 1, half, stream) != half || fflush(stream) != 0)
            return says(-1);
        pauses("half");
        if (fputs(text + half, stream) < 0)
            return says(-1);
        return says(gass_fclose(stream));
    }
    int flags = O_WRONLY | O_CREAT | O_TRUNC;
    if (strcmp(how, "edit") == 0)
        flags = O_RDWR;
    if (strcmp(how, "stream") == 0)
        flags = O_WRONLY | O_APPEND | O_CREAT;
    int fd = gass_open(name, flags, 0644);
    if (fd < 0 || write(fd, text, half) != (ssize_t)half)
        return says(-1);
    pauses("half");
    signal(SIGPIPE, SIG_IGN);
    if (write(fd, text + half, length - half) != (ssize_t)(length - half))
        printf("write %s\n", strerrorname_np(errno));
    return says(is_discarded ? godwit_close(fd, GODWIT_DISCARD) : gass_close(fd));
}

static int reading(const char *name)
{
    char all[64] = {0};
    FILE *stream = gass_fopen(name, "r");
    if (stream == NULL)
        return says(-1);
    setvbuf(stream, NULL, _IONBF, 0);
    if (fread(all, 1, 3, stream) != 3)
        return 1;
    pauses(all);
    size_t rest = fread(all, 1, sizeof all - 1, stream);
    printf("%.*s\n", (int)rest, all);
    return says(gass_fclose(stream));
}

int main(int count, char **words)
{
    if (count < 3)
        return 2;
    const char *act = words[1], *name = words[2], *text = count > 3 ? words[3] : "";
    size_t length = strlen(text);
    if (strcmp(act, "read") == 0) {
        int fd = gass_open(name, O_RDONLY);
        if (fd < 0)
            return says(fd);
        long long size = lseek(fd, 0, SEEK_END);
        return gass_close(fd) == 0 ? says(size) : says(-1);
    }
    if (strcmp(act, "write") == 0) {
        int fd = gass_open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        if (fd < 0 || write(fd, text, length) != (ssize_t)length)
            return says(-1);
        return says(gass_close(fd));
    }
    if (strcmp(act, "dup") == 0) {
        int fd = gass_open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        int copy = dup(fd);
        if (fd < 0 || write(fd, text, length) != (ssize_t)length || gass_close(fd) != 0)
            return says(-1);
        if (write(copy, text, length) != (ssize_t)length)
            return says(-1);
        return says(gass_close(copy));
    }
    if (strcmp(act, "edit") == 0) { /* the first bytes of a file that is there */
        int fd = gass_open(name, O_RDWR);
        if (fd < 0 || pwrite(fd, text, length, 0) != (ssize_t)length)
            return says(-1);
        return says(gass_close(fd));
    }
    if (strcmp(act, "put") == 0) {
        if (godwit_put(name, 0, length, text) != 0)
            return says(-1);
        return says(godwit_push(name, 30000));
    }
    if (strcmp(act, "whole") == 0)
        return says(gass_put(name, text, length));
    if (strcmp(act, "get") == 0) {
        char all[64] = {0};
        long long came = gass_get(name, 1, all, sizeof all - 1);
        if (came < 0)
            return says(came);
        printf("%s\n", all);
        return 0;
    }
    if (strcmp(act, "whole-of") == 0) { /* as it is read by a descriptor */
        char all[64] = {0};
        int fd = gass_open(name, O_RDONLY);
        if (fd < 0 || read(fd, all, sizeof all - 1) < 0)
            return says(-1);
        printf("%s\n", all);
        return gass_close(fd);
    }
    if (strcmp(act, "slowly") == 0 && count > 4)
        return slowly(name, text, words[4], count > 5);
    if (strcmp(act, "reading") == 0)
        return reading(name);
    if (strcmp(act, "slices") == 0) { /* the first two bytes of two MiB */
        struct godwit_range ranges[] = {{1 << 20, (1 << 20) + 2}, {7 << 20, (7 << 20) + 2}};
        int fd = godwit_open_lazy(name);
        if (fd < 0 || godwit_ensure(fd, ranges, 2) != 0)
            return says(-1);
        char bytes[5] = {0};
        if (pread(fd, bytes, 2, 1 << 20) != 2 || pread(fd, bytes + 2, 2, 7 << 20) != 2)
            return says(-1);
        pauses(bytes);
        return says(godwit_ensure(fd, ranges, 2) == 0 && godwit_ensure(0, ranges, 2) == 0 ? gass_close(fd) : -1);
    }
    if (strcmp(act, "memory") == 0) {
        struct godwit_memory memory;
        return gass_memory(name, &memory) == 0 ? says((long long)memory.size) : says(-1);
    }
    if (strcmp(act, "append") == 0)
        return says(gass_append(name, text, length, GODWIT_PUSH));
    if (strcmp(act, "push") == 0)
        return says(godwit_push(name, 30000));
    if (strcmp(act, "copy") == 0)
        return says(gass_copy(name, text));
    if (strcmp(act, "private") == 0) { /* a new file that is its owner's alone */
        umask(0027);
        int fd = gass_open(name, O_WRONLY | O_CREAT | O_TRUNC, 0660);
        if (fd < 0 || write(fd, text, length) != (ssize_t)length)
            return says(-1);
        return says(gass_close(fd));
    }
    if (strcmp(act, "discard") == 0) {
        int fd = gass_open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        if (fd < 0 || write(fd, text, length) != (ssize_t)length)
            return says(-1);
        return says(godwit_close(fd, GODWIT_DISCARD));
    }
    if (strcmp(act, "half") == 0) { /* stdio cannot write the rest of what it has */
        struct rlimit limit = {1, 1};
        signal(SIGXFSZ, SIG_IGN);
        FILE *stream = gass_fopen(name, "w");
        if (stream == NULL || fputs(text, stream) < 0 || setrlimit(RLIMIT_FSIZE, &limit) != 0)
            return says(-1);
        return says(gass_fclose(stream));
    }
    if (strcmp(act, "others") == 0) { /* two descriptions of one file: the last close delivers */
        int one = gass_open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        int other = gass_open(name, O_RDWR);
        if (one < 0 || other < 0 || write(one, text, length) != (ssize_t)length || gass_close(one) != 0)
            return says(-1);
        printf("%s\n", godwit_note());
        if (pwrite(other, "!", 1, (off_t)length) != 1)
            return says(-1);
        int outcome = gass_close(other);
        printf("%s.\n", godwit_note());
        return says(outcome);
    }
    if (strcmp(act, "append-large") == 0) {
        static char large[(1 << 20) + 1];
        return says(gass_append(name, large, sizeof large, GODWIT_COMMIT));
    }
    if (strcmp(act, "fill") == 0 || strcmp(act, "hold") == 0) {
        gass_cache *cache = gass_cache_open(NULL);
        struct gass_cache_entry entry;
        int added = gass_cache_add(cache, name, "job", &entry);
        if (added < 0)
            return says(added);
        printf("%s ", added == GASS_CACHE_NEW ? "new" : "exists");
        fflush(stdout);
        if (strcmp(act, "hold") == 0)
            pause();
        if (added == GASS_CACHE_NEW && write(entry.fd, text, length) != (ssize_t)length)
            return says(-1);
        close(entry.fd);
        return says(gass_cache_add_done(cache, name, 7));
    }
    if (strcmp(act, "untag") == 0) {
        gass_cache *cache = gass_cache_open(NULL);
        struct gass_cache_entry entry;
        if (gass_cache_delete_start(cache, name, &entry) != 0)
            return says(-1);
        printf("%lld ", (long long)entry.timestamp);
        return says(gass_cache_delete(cache, name, text));
    }
    if (strcmp(act, "stamp") == 0) {
        gass_cache *cache = gass_cache_open(NULL);
        struct gass_cache_entry entry;
        return gass_cache_query(cache, name, &entry) == 0 ? says((long long)entry.timestamp) : says(-1);
    }
    if (strcmp(act, "stat") == 0) {
        struct godwit_stat stat;
        return godwit_stat(name, &stat) == 0 ? says((long long)stat.size) : says(-1);
    }
    if (strcmp(act, "transfers") == 0) {
        gass_cache *cache = gass_cache_open(NULL);
        struct gass_cache_entry entry;
        return gass_cache_query(cache, name, &entry) == 0 ? says((long long)entry.transfers) : says(-1);
    }
    return 2;
}
