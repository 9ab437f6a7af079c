/* cat NAME...: writes files, of this machine and of others, to standard output. */

#include <stdio.h>

#include "godwit.h"

int main(int count, char **names)
{
    char piece[1 << 16];
    for (int i = 1; i < count; i++) {
        FILE *file = gass_fopen(names[i], "r");
        if (file == NULL) {
            fprintf(stderr, "cat: %s\n", godwit_strerror());
            return 1;
        }
        size_t came;
        while ((came = fread(piece, 1, sizeof piece, file)) > 0)
            fwrite(piece, 1, came, stdout);
        gass_fclose(file);
    }
    return 0;
}
