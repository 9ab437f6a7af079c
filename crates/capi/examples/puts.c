/* puts NAME COUNT: writes numbered records into a file, in any order, and goes on before they are there. */

#include <stdio.h>
#include <stdlib.h>

#include "godwit.h"

int main(int count, char **words)
{
    if (count != 3) {
        fprintf(stderr, "usage: puts NAME COUNT\n");
        return 2;
    }
    long records = atol(words[2]);
    for (long i = records - 1; i >= 0; i--) {
        char record[32];
        snprintf(record, sizeof record, "%15ld\n", i);
        godwit_put(words[1], (uint64_t)i * 16, 16, record);
    }
    /* Here all of it is on the disk of this machine: the program may end, and the network be down. */
    if (godwit_commit(-1) != 0) {
        fprintf(stderr, "puts: %s\n", godwit_strerror());
        return 1;
    }
    /* Here everybody sees it. */
    if (godwit_push(words[1], 60000) != 0) {
        fprintf(stderr, "puts: %s\n%s\n", godwit_strerror(), godwit_hint());
        return 1;
    }
    return 0;
}
