/* told read|write|put|lines NAME [TEXT]: does that, and prints what it was told: "ok …" or the name of the error.
 * told stat|transfers NAME. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
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
    if (strcmp(act, "append") == 0)
        return says(gass_append(name, text, length, GODWIT_PUSH));
    if (strcmp(act, "push") == 0)
        return says(godwit_push(name, 30000));
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
