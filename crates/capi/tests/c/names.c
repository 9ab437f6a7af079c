/* names JSON [MOST]: asks the catalog, or changes it, prints each answer, and stops after MOST of them. */

#include <stdlib.h>

#include "godwit.h"

static int left = -1;

static int answer(void *context, const char *json)
{
    fprintf((FILE *)context, "%s\n", json);
    return --left == 0;
}

int main(int count, char **words)
{
    if (count < 2)
        return 2;
    if (count > 2)
        left = atoi(words[2]);
    long long told = godwit_catalog(words[1], answer, stdout);
    if (told < 0)
        printf("%s\n%s\n%s\n", godwit_error_name(), godwit_strerror(), godwit_hint());
    else
        printf("ok %lld\n", told);
    return 0;
}
