/* cache URL TAG: the dance of the cache interface: whoever is first fills it, and everybody else finds it. */

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "godwit.h"

static int tell(void *context, const char *url, const char *const *tags, const struct gass_cache_entry *entry)
{
    (void)context;
    printf("%s %llu", url, (unsigned long long)entry->size);
    for (; *tags != NULL; tags++)
        printf(" %s", *tags);
    printf("\n");
    return 0;
}

static int failed(void)
{
    fprintf(stderr, "cache: %s\n", godwit_strerror());
    return 1;
}

int main(int count, char **words)
{
    if (count != 3) {
        fprintf(stderr, "usage: cache URL TAG\n");
        return 2;
    }
    gass_cache *cache = gass_cache_open(NULL);
    struct gass_cache_entry entry;
    int state = gass_cache_add(cache, words[1], words[2], &entry);
    if (state < 0)
        return failed();
    if (state == GASS_CACHE_NEW) {
        const char *text = "made here\n";
        int written = write(entry.fd, text, strlen(text)) == (ssize_t)strlen(text);
        close(entry.fd);
        if (!written)
            return gass_cache_add_failed(cache, words[1]), 1;
    } else {
        close(entry.fd);
    }
    if (gass_cache_add_done(cache, words[1], (int64_t)time(NULL)) != 0)
        return failed();
    if (gass_cache_list(cache, NULL, tell, NULL) < 0)
        return failed();
    if (gass_cache_delete(cache, words[1], words[2]) != 0)
        return failed();
    return gass_cache_close(cache);
}
