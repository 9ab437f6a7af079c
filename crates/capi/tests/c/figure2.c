/* Figure 2 of the paper, and what its includes would be: the types of its variables. */
#include <gfarm.h>
#include <stdio.h>
#include <string.h>

int mode = 0644, lflag = GFARM_FILE_SEQUENTIAL, np;

write_test(char *fn, void *buf, int size)
{
    GFS_File gf;
    gfs_pio_create(fn, GFS_FILE_WRONLY,
                  mode, &gf);
    gfs_pio_set_view_local(gf, lflag);
    gfs_pio_write(gf, buf, size, &np);
    gfs_pio_close(gf);
}

int main(int argc, char **argv) {
    GFS_FILE other = NULL;
    char *why = gfs_pio_read(other, argv, argc, &np);
    puts(why);
    gfarm_initialize(&argc, &argv);
    write_test(argv[1], argv[2], (int)strlen(argv[2]));
    printf("%d\n", np);
    gfarm_terminate();
    return 0;
}
