/* serves DIRECTORY refers URL: refers whoever reads /moved to that.
 * serves DIRECTORY [all|outputs|printed] [CONFIG]: serves it to whoever does not ask for what is below /closed/ (all: to
 * all, to be read; outputs: and what comes is printed; printed: by a function of ours), and prints where, and each deed,
 * until its input ends. */

#include <errno.h>
#include <poll.h>
#include <stddef.h>
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

static const char *moved_to;

static const char *refer(void *context, const struct gass_visit *visit)
{
    if (strcmp(visit->path, "/moved") != 0)
        return NULL;
    ++*(int *)context;
    return moved_to;
}

static void prints(void *context, const char *path, const void *data, size_t length)
{
    (void)context;
    printf("%s: %.*s", path, (int)length, (const char *)data);
    fflush(stdout);
}

int main(int count, char **words)
{
    if (count < 2)
        return 2;
    const char *how = count > 2 ? words[2] : "";
    int asked = 0, is_for_all = strcmp(how, "all") == 0;
    struct gass_server_options options = {.size = sizeof options, .writes = *how == 0};
    options.outputs = strcmp(how, "outputs") == 0 || strcmp(how, "printed") == 0;
    options.print = strcmp(how, "printed") == 0 ? prints : NULL;
    if (*how == 0) /* as a program that was compiled with version 2 */
        options.size = offsetof(struct gass_server_options, print);
    options.authorise = is_for_all ? NULL : authorise;
    if (strcmp(how, "refers") == 0 && count > 3) {
        moved_to = words[3];
        options.refer = refer;
    } else if (count > 3) {
        options.config = words[3];
    }
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
