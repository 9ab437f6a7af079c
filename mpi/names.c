/* names.c: which names are files of the grid. */
#include "file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const schemes[] = {"ftp", "gsiftp", "sshftp", "godwit", "https", "grid"};

/* Returns how long the scheme of a name is, without its colon, or 0. */
static size_t scheme_length(const char *name)
{
    size_t length = strcspn(name, ":/");
    return name[length] == ':' ? length : 0;
}

static int is_scheme(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
        if (strlen(schemes[i]) == length && !strncmp(name, schemes[i], length))
            return 1;
    return 0;
}

static char *joined(const char *first, const char *between, const char *second)
{
    char *name = NULL;
    return asprintf(&name, "%s%s%s", first, between, second) < 0 ? NULL : name;
}

char *grid_name(const char *name)
{
    const char *prefix = getenv("GODWIT_MPI_PREFIX");
    size_t length = scheme_length(name);
    if (!strncmp(name, "/godwit/", 8))
        return strdup(name);
    if (is_scheme(name, length)) {
        const char *rest = name + length + 1;
        if (!strncmp(name, "grid:", 5) || !strncmp(rest, "//", 2))
            return strdup(name);
        /* With one slash: netCDF-4 refuses names that have two. */
        char scheme[16];
        snprintf(scheme, sizeof scheme, "%.*s://", (int)length, name);
        return *rest == '/' ? joined(scheme, "", rest + 1) : NULL;
    }
    /* Other prefixes, as ufs:, are the MPI's. */
    if (prefix && *prefix && *name && *name != '/' && !length)
        return joined(prefix, prefix[strlen(prefix) - 1] == '/' ? "" : "/", name);
    return NULL;
}
