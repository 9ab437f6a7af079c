/* log NAME: appends each line of standard input to a file as soon as it is there. */

#include <stdio.h>

#include "godwit.h"

int main(int count, char **names)
{
    FILE *log = count == 2 ? gass_fopen(names[1], "a") : NULL;
    if (log == NULL) {
        fprintf(stderr, "log: %s\n", count == 2 ? godwit_strerror() : "NAME is missing");
        return 1;
    }
    setvbuf(log, NULL, _IOLBF, 0);
    char line[4096];
    while (fgets(line, sizeof line, stdin) != NULL)
        fputs(line, log);
    if (gass_fclose(log) != 0) {
        fprintf(stderr, "log: %s\n", godwit_strerror());
        return 1;
    }
    return 0;
}
