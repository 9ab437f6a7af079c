/* layout.h: which bytes a datatype covers, in the order of its type map. */
#ifndef GODWIT_MPI_LAYOUT_H
#define GODWIT_MPI_LAYOUT_H

#include <mpi.h>
#include <stdint.h>

/* A tree that repeats what the constructors of the type repeat, so that a vector of a million blocks is two nodes. */
struct layout;

/* How long the basic types are: as in memory, or as the data representation external32 has them. */
enum representation { NATIVE_BYTES, EXTERNAL_32 };

/* Returns NULL for a type that cannot be read, and when there is no memory. */
struct layout *layout_of(MPI_Datatype type, enum representation);
void layout_free(struct layout *);

/* Returns the number of bytes of data. */
int64_t layout_size(const struct layout *);
/* Returns the distance from one instance of the type to the next. */
int64_t layout_extent(const struct layout *);
/* Returns 1 if `count` instances are one run of bytes, and sets `start` to its place. */
int layout_is_dense(const struct layout *, int64_t count, int64_t *start);

/* Receives one run of bytes. Anything but 0 ends the walk. */
typedef int (*layout_visit)(void *context, int64_t at, int64_t size);

/* Visits bytes `from` to `to` of the data of instances that follow each other from `base`. */
int layout_walk(const struct layout *, int64_t base, int64_t from, int64_t to, layout_visit, void *context);

/* Returns why a file cannot be seen through this type, or NULL: displacements must not be negative or decrease, and
 * bytes of a file that is written must not occur twice. */
const char *layout_unfit_for_view(const struct layout *, int writes);

#endif
