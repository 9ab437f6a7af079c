/* serves DIRECTORY [all]: serves it to whoever does not ask for what is below /closed/ (all: to all, to be read), and
 * prints where, and each deed, until its input ends. */

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "godwit.h"

static int authorise(void *context, const struct gass_visit *visit)
{
    int may = strncmp(visit->path, "/closed", 7) != 0;
    printf("%s %s %s %s\n", visit->who == NULL ? "somebody" : visit->who, visit->deed, visit->path, may ? "yes" : "no");
    fflush(stdout);
    ++*(int *)context;
    return may;
}

int main(int count, char **words)
{
    if (count < 2)
        return 2;
    int asked = 0;
    struct gass_server_options options = {.size = sizeof options, .writes = count < 3};
    options.authorise = count < 3 ? authorise : NULL;
    options.context = &asked;
    gass_server *server = gass_server_open(words[1], &options);
    if (server == NULL) {
        printf("%s\n%s\n", godwit_error_name(), godwit_strerror());
        return 0;
    }
    printf("%s\n", gass_server_url(server));
    fflush(stdout);
    int answered = 0;
    for (;;) {
        struct pollfd both[2] = {{.fd = 0, .events = POLLIN}, {.fd = godwit_fd(), .events = POLLIN}};
        if (poll(both, 2, -1) < 0)
            return 1;
        godwit_op done[1];
        godwit_poll(done, 1, 0);
        int step = gass_server_step(server, 0);
        if (step < 0) {
            printf("%s\n", godwit_strerror());
            return 1;
        }
        answered += step;
        if (both[0].revents != 0)
            break;
    }
    if (gass_server_close(server) != 0 || answered != asked)
        return 1;
    printf("closed\n");
    return 0;
}
