/* Does with files in fragments what its arguments say, one after the other; the first that fails ends it. */
#include <gfarm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static GFS_File gf;

static int flags(const char *words) {
    int all = 0;
    if (strstr(words, "r-")) all |= GFARM_FILE_RDONLY;
    if (strstr(words, "-w")) all |= GFARM_FILE_WRONLY;
    if (strstr(words, "rw")) all |= GFARM_FILE_RDWR;
    if (strstr(words, "seq")) all |= GFS_FILE_SEQUENTIAL;
    if (strstr(words, "+rep")) all |= GFARM_FILE_REPLICATION;
    if (strstr(words, "!rep")) all |= GFARM_FILE_NOT_REPLICATION;
    return all;
}

/* Writes so many bytes, in calls of 64 KiB: each 8 bytes are their number in the stream that begins with `first`. */
static char *fill(long bytes, unsigned long first) {
    static unsigned long words[8192];
    while (bytes > 0) {
        int count, size = bytes < (long)sizeof words ? (int)bytes : (int)sizeof words;
        char *why;
        for (count = 0; count < 8192; count++) words[count] = first++;
        why = gfs_pio_write(gf, words, size, &count);
        if (why != NULL) return why;
        if (count != size) return "it wrote less";
        bytes -= size;
    }
    return NULL;
}

/* Prints what is left of the view. */
static char *cat(void) {
    static char bytes[100000];
    int came;
    do {
        char *why = gfs_pio_read(gf, bytes, sizeof bytes, &came);
        if (why != NULL) return why;
        fwrite(bytes, 1, (size_t)came, stdout);
    } while (came > 0);
    return NULL;
}

int main(int argc, char **argv) {
    int at = 1;
    (void)argc;
#define NEXT argv[at++]
    while (argv[at] != NULL) {
        const char *verb = NEXT;
        char *why = NULL, *name;
        int one, two;
        if (strcmp(verb, "create") == 0) {
            name = NEXT;
            why = gfs_pio_create(name, flags(NEXT), 0640, &gf);
        } else if (strcmp(verb, "open") == 0) {
            name = NEXT;
            why = gfs_pio_open(name, flags(NEXT), &gf);
        } else if (strcmp(verb, "local") == 0) {
            why = gfs_pio_set_view_local(gf, flags(NEXT));
        } else if (strcmp(verb, "global") == 0) {
            why = gfs_pio_set_view_global(gf, flags(NEXT));
        } else if (strcmp(verb, "index") == 0) {
            one = atoi(NEXT);
            two = atoi(NEXT);
            name = NEXT;
            why = gfs_pio_set_view_index(gf, one, two, *name != '\0' ? name : NULL, 0);
        } else if (strcmp(verb, "write") == 0) {
            name = NEXT;
            why = gfs_pio_write(gf, name, (int)strlen(name), &one);
        } else if (strcmp(verb, "fill") == 0) {
            one = atoi(NEXT);
            why = fill(one, strtoul(NEXT, NULL, 10));
        } else if (strcmp(verb, "cat") == 0) {
            why = cat();
        } else if (strcmp(verb, "read") == 0) {
            static char bytes[1000];
            one = 0;
            why = gfs_pio_read(gf, bytes, atoi(NEXT), &one);
            if (why == NULL) printf("%d %.*s\n", one, one, bytes);
        } else if (strcmp(verb, "seek") == 0) {
            off_t to = -1;
            one = atoi(NEXT);
            why = gfs_pio_seek(gf, one, atoi(NEXT), &to);
            if (why == NULL) printf("%ld\n", (long)to);
        } else if (strcmp(verb, "close") == 0) {
            why = gfs_pio_close(gf);
            gf = NULL;
        } else if (strcmp(verb, "wait") == 0) {
            puts("waits");
            fflush(stdout);
            getchar();
        } else {
            why = "no such verb";
        }
        if (why != NULL) {
            fprintf(stderr, "%s: %s\n", verb, why);
            return 1;
        }
    }
    return 0;
}
