/* several NAME...: gets the first bytes of many files at once, and tells each as it comes. */

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "godwit.h"

#define BYTES 16

int main(int count, char **names)
{
    godwit_op *ops = calloc((size_t)count, sizeof *ops);
    char(*buffers)[BYTES] = calloc((size_t)count, BYTES);
    if (ops == NULL || buffers == NULL)
        return 1;
    int left = 0, failed = 0;
    for (int i = 1; i < count; i++) {
        ops[i] = gass_get_begin(names[i], 0, buffers[i], BYTES, NULL);
        if (ops[i] < 0)
            fprintf(stderr, "several: %s\n", godwit_strerror()), failed = 1;
        else
            left++;
    }
    while (left > 0) {
        /* The loop of the program: what else it waits for stands beside ours. */
        struct pollfd polled = {godwit_fd(), POLLIN, 0};
        poll(&polled, 1, -1);
        godwit_op ended[8];
        int many = godwit_poll(ended, 8, 0);
        for (int at = 0; at < many; at++, left--) {
            int i = 1;
            while (ops[i] != ended[at])
                i++;
            long long bytes = godwit_result(ended[at]);
            if (bytes < 0)
                fprintf(stderr, "several: %s\n", godwit_strerror()), failed = 1;
            else
                printf("%s: %.*s\n", names[i], (int)bytes, buffers[i]);
        }
    }
    free(ops);
    free(buffers);
    return failed;
}
