/* copy FROM TO: one file to another, either of which may be of another machine. */

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "godwit.h"

int main(int count, char **names)
{
    if (count != 3) {
        fprintf(stderr, "usage: copy FROM TO\n");
        return 2;
    }
    int from = gass_open(names[1], O_RDONLY);
    int to = from < 0 ? -1 : gass_open(names[2], O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (to < 0) {
        fprintf(stderr, "copy: %s\n", godwit_strerror());
        return 1;
    }
    char piece[1 << 16];
    ssize_t came;
    while ((came = read(from, piece, sizeof piece)) > 0) {
        if (write(to, piece, (size_t)came) != came) {
            perror("copy");
            godwit_close(to, GODWIT_DISCARD); /* half a file is of use to nobody */
            return 1;
        }
    }
    gass_close(from);
    if (gass_close(to) != 0) { /* it waits until the file is at its target */
        fprintf(stderr, "copy: %s\n%s\n", godwit_strerror(), godwit_hint());
        return 1;
    }
    return 0;
}
