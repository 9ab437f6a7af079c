/* godwit.h: files of other machines, from C and C++.
 *
 * All of it talks with the node of this machine (`godwit node --local`), which is found, or started, by the first
 * call that needs it; GODWIT_SOCKET names another. What each call promises is in docs/semantics/c-library.md.
 *
 * Names: `/godwit/HOST/path`, `SCHEME://…` and `grid:/…` are files of other machines; `file://…` and all other names are
 * files of this one, and are passed to open(2).
 *
 * Failures return -1 (or NULL), and set errno; godwit_strerror() says in words what was wanted and why not.
 * Every function may be called from any thread. A child that was forked has a conversation of its own; what its
 * parent opened is closed there as by close(2). No function starts a thread, or changes what signals do.
 */
#ifndef GODWIT_H
#define GODWIT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* Grows when something is added. What a program was compiled with goes on to work while the soname,
 * libgodwit.so.0, is the same. */
#define GODWIT_API_VERSION 6

#ifdef __cplusplus
extern "C" {
#endif

/* Returns GODWIT_API_VERSION of the library that is loaded. */
int godwit_api_version(void);

/* Finds or starts the node of this machine. The first other call does so, too; the descriptors of the library are those that
 * are free then. */
int godwit_begin(void);

/* ---- Why not -------------------------------------------------------------------------------------------- */

/* About the last call of this thread that failed: what was wanted and why not, in one sentence; what to do, or
 * ""; the number for errno; its name, as "ENOENT"; 1 if waiting may help. The texts are good until the thread's next
 * failure. */
const char *godwit_strerror(void);
const char *godwit_hint(void);
int godwit_error(void);
const char *godwit_error_name(void);
int godwit_error_passes(void);

/* What the last gass_close() of this thread has to say though it did not fail, or "": that somebody else still writes
 * the file, and it is delivered when they close it. */
const char *godwit_note(void);

/* ---- Files ---------------------------------------------------------------------------------------------- */

/* As open(2) and fopen(3). What is opened to be read is here as a whole when the call returns. O_WRONLY|O_APPEND
 * ("a") is a stream to the end of the file: each write goes at once. */
int gass_open(const char *name, int flags, ... /* mode_t mode */);
FILE *gass_fopen(const char *name, const char *mode);

/* Opens a file to read, and waits for none of its bytes: until godwit_ensure() they read as zeros. */
int godwit_open_lazy(const char *name);

struct godwit_range {
    uint64_t start;
    uint64_t end; /* behind the last byte */
};

/* Waits until all bytes of these ranges are here: they come as one transfer, in steps of 64 KiB. Where calls follow each
 * other in sequence or in strides, the next ones come before they are asked for. ESTALE: the server has another file of
 * that name by now; open it again. Of other descriptors all bytes are here. */
int godwit_ensure(int fd, const struct godwit_range *ranges, size_t count);

/* A file that programs of this machine read and write together. The descriptor is good for pread(2), pwrite(2) and fstat(2);
 * godwit_ensure() comes before a read, godwit_grant() before a write. */
struct godwit_open_options {
    size_t size;          /* sizeof(struct godwit_open_options) */
    const char *session;  /* programs that say one word at one node share one file; NULL: this process alone */
    uint32_t parallelism; /* the most streams; 0: as many as suit */
    uint32_t tcp_buffer;  /* bytes that the sockets of data connections of FTP hold, at both ends; 0: the kernels tune them */
    int stream_mode;      /* 1: one connection a transfer, which this machine makes */
    int one_host;         /* 1: of a striped server, one host moves all bytes */
};

/* Of all who share a file, the first says how its bytes travel; of one that is only read, the last.
 * O_RDONLY or O_RDWR, with O_CREAT and O_EXCL: the server has the file, empty, when the call returns. A file that is only
 * read comes from the cache of this machine. */
int godwit_open(const char *name, int flags, const struct godwit_open_options *options);
int godwit_file_fd(int file);
/* Before pwrite(2): bytes that come from the server later stay off these ranges. */
int godwit_grant(int file, const struct godwit_range *ranges, size_t count);
/* Begins godwit_ensure(), for a file of godwit_open(). Returns 0 if the bytes are known to be here. It is ended by
 * godwit_result(); bytes that failed to come can be asked for again. */
int64_t godwit_ensure_begin(int file, const struct godwit_range *ranges, size_t count);
/* After pwrite(2): the next godwit_sync() delivers these ranges. It costs nothing. */
int godwit_wrote(int file, const struct godwit_range *ranges, size_t count);
/* Cuts or extends the file for all who share it; the next godwit_sync() does so at the server. */
int godwit_resize(int file, uint64_t size);

#define GODWIT_SYNC_TELL 1    /* only tell the node what this process wrote: another process delivers it, and looks */
#define GODWIT_SYNC_LOOK 2    /* ask the server afterwards: what others changed there is fetched anew when it is read */
#define GODWIT_SYNC_CHANGED 4 /* the same, when others are known to have changed it */

/* Delivers what all who share the file have told, in one transfer. A file that was written as a whole is replaced in one step.
 * On failure the next call delivers it. With LOOK or CHANGED no program may write meanwhile. Returns how many bytes went. */
int64_t godwit_sync(int file, int flags);
/* What was not synced is given up. */
int godwit_file_close(int file);
/* Removes a file at its server, and waits for that. */
int godwit_remove(const char *name);

struct godwit_file_report {
    size_t size;        /* sizeof(struct godwit_file_report) */
    uint64_t fetched;   /* bytes from the server, for all who share the file */
    uint64_t delivered; /* bytes to the server */
    uint64_t transfers;
};

int godwit_file_report(int file, struct godwit_file_report *report);
/* A word that programs have in common if they talk with one node. Returns its length, and copies it as long as there is room. */
long godwit_node_name(char *word, size_t size);

/* As close(2) and fclose(3). Of several who write a file, also of other programs, the last to close it delivers it: the
 * others return at once (godwit_note() says so). The last waits until what was written is at its target (GODWIT_CLOSE=commit: until it
 * survives a crash of this machine; GODWIT_CLOSE_TIMEOUT=SECONDS: no longer). On failure the descriptor is closed all
 * the same, and what was written is kept. A node that is killed meanwhile is not in the way: the next one delivers it. */
int gass_close(int fd);
int gass_fclose(FILE *stream);

#define GODWIT_NOWAIT 1 /* what was written is delivered some time */
#define GODWIT_COMMIT 2 /* it survives a crash of this machine */
#define GODWIT_PUSH 3   /* it is at its target */
#define GODWIT_DISCARD 4 /* it is given up, and not delivered: unless others write the file too, or it had changes before */

/* gass_close() and gass_fclose() with one of these, whatever the environment says. */
int godwit_close(int fd, int how);
int godwit_fclose(FILE *stream, int how);

struct godwit_stat {
    uint64_t size;
    int64_t mtime_ns; /* since the epoch; -1: not known */
    int32_t mode;     /* permission bits; -1: not known */
    int32_t is_directory;
};

int godwit_stat(const char *name, struct godwit_stat *stat);

/* As unlink(2) or rmdir(2), mkdir(2), rename(2), truncate(2), and chmod(2) with utimensat(2): -1 leaves a mode or a time as it
 * is. Where the server is away they are done when it is there again, in turn with what was written. */
int godwit_unlink(const char *name);
int godwit_mkdir(const char *name);
int godwit_rename(const char *name, const char *to);
int godwit_truncate(const char *name, uint64_t size);
int godwit_set(const char *name, int32_t mode, int64_t mtime_ns);

/* Fetches a file, and keeps it under a tag (NULL: none) for expires_s seconds (0: until the tag is taken off). */
int gass_stage(const char *name, const char *tag, uint64_t expires_s);
/* Waits until what is owed of a file is at its target, and takes the tag off. */
int gass_unstage(const char *name, const char *tag);

/* ---- The cache ------------------------------------------------------------------------------------------ */

typedef struct gass_cache gass_cache;

#define GASS_CACHE_EXISTS 0
#define GASS_CACHE_NEW 1

struct gass_cache_entry {
    int fd;            /* of gass_cache_add(): the file, the caller's to close; else -1 */
    int has_timestamp;
    int64_t timestamp; /* means what its user says */
    uint64_t size;
    uint64_t transfers; /* how often it was fetched; of gass_cache_query() and gass_cache_list() */
    uint64_t tags;      /* how many it has */
    int is_whole;       /* all of it is here */
};

/* The cache of this user; "peer:NAME": that of a peer, to be looked at. */
gass_cache *gass_cache_open(const char *where);
/* Files that were added and not done are given up. */
int gass_cache_close(gass_cache *cache);

/* Locks a file until gass_cache_add_done(): others who add, open or get it, or take tags off it, wait; if this process
 * ends, the next of them goes on. Its origin is not asked for anything. GASS_CACHE_NEW: entry->fd is to be filled, and closed
 * before gass_cache_add_done() (EBUSY), which has the file be what the URL says as long as a tag is on it.
 * GASS_CACHE_EXISTS: it can be read; `timestamp` is what was said last. The tag is put on by gass_cache_add_done(); NULL:
 * that of the job, or "staged". When that fails, the file is locked still. */
int gass_cache_add(gass_cache *cache, const char *url, const char *tag, struct gass_cache_entry *entry);
int gass_cache_add_done(gass_cache *cache, const char *url, int64_t timestamp);
/* Where the file lies that this cache has locked: how long that is, without its end; copied if it is shorter than
 * `size`. Nothing but the file itself is the caller's. */
long gass_cache_path(gass_cache *cache, const char *url, char *path, size_t size);
/* It did not become anything: no tag is put on. */
int gass_cache_add_failed(gass_cache *cache, const char *url);
/* Locks a file that is there until gass_cache_delete(), and tells its timestamp. */
int gass_cache_delete_start(gass_cache *cache, const char *url, struct gass_cache_entry *entry);
/* Takes one instance of a tag off. The file may be forgotten when it has none. */
int gass_cache_delete(gass_cache *cache, const char *url, const char *tag);
int gass_cache_query(gass_cache *cache, const char *url, struct gass_cache_entry *entry);
/* Take all instances of a tag off one file, or all. */
int gass_cache_cleanup_tag(gass_cache *cache, const char *url, const char *tag);
int gass_cache_cleanup_tag_all(gass_cache *cache, const char *tag);

/* Calls `each` for every file whose URL begins with `prefix` (NULL: all), until it returns other than 0. The tags
 * end with NULL. Returns how many it was called for. */
typedef int (*gass_cache_each)(void *context, const char *url, const char *const *tags,
                               const struct gass_cache_entry *entry);
long gass_cache_list(gass_cache *cache, const char *prefix, gass_cache_each each, void *context);

/* ---- Bytes, while the program does something else ------------------------------------------------------- */

/* What is under way, by a number. A buffer, or descriptor, is the library's until godwit_result() has told the
 * end, or godwit_cancel() returned. Work is done in godwit_poll(), godwit_wait() and godwit_result(), and nowhere else. */
typedef int64_t godwit_op;

struct godwit_options {
    size_t size;         /* of this struct, as it was compiled: sizeof(struct godwit_options) */
    size_t unit_bytes;   /* how much is moved at a time; 0: 1 MiB */
    int how;             /* of what writes: GODWIT_COMMIT, GODWIT_PUSH, GODWIT_NOWAIT; 0: GODWIT_PUSH */
    int record;          /* of gass_append_begin(): the bytes are one piece, cut nowhere */
    const char *tag;     /* of gass_stage_begin() */
    uint64_t expires_s;
};

/* `options` may be NULL. */
godwit_op gass_get_begin(const char *name, uint64_t offset, void *buffer, size_t length,
                         const struct godwit_options *options);
/* Writes what it gets with write(2): length UINT64_MAX: to the end of the file. */
godwit_op gass_get_file_begin(const char *name, uint64_t offset, uint64_t length, int fd,
                              const struct godwit_options *options);
/* To memory, without a disk. */
godwit_op gass_memory_begin(const char *name, const struct godwit_options *options);
/* Replaces a file. */
godwit_op gass_put_begin(const char *name, const void *data, size_t length,
                         const struct godwit_options *options);
/* Reads what it puts with read(2), to its end. */
godwit_op gass_put_file_begin(const char *name, int fd, const struct godwit_options *options);
/* From one server to another, past this machine where both servers can do that. */
godwit_op gass_copy_begin(const char *from, const char *to, const struct godwit_options *options);
/* At most 4 MiB; as one piece (`record`) 1 MiB: EFBIG. */
godwit_op gass_append_begin(const char *name, const void *data, size_t length,
                            const struct godwit_options *options);
godwit_op gass_stage_begin(const char *name, const struct godwit_options *options);

/* Is readable (poll, select, epoll) when godwit_poll() has something to do. The library's: not to be read or closed. */
int godwit_fd(void);
/* Does what can be done, at most `timeout_ms` (-1: until something has ended; 0: without waiting), and returns how
 * many have ended that were not told before, the first `max` of them in `done`. */
int godwit_poll(godwit_op *done, int max, int timeout_ms);
/* Waits until one has ended: 0; -1 and ETIMEDOUT if not yet. */
int godwit_wait(godwit_op op, int timeout_ms);
/* How it ended: the number of bytes, or -1 and why not. It is forgotten then; EINPROGRESS: it has not. */
int64_t godwit_result(godwit_op op);
/* How much of how much was moved (UINT64_MAX: not known). */
int godwit_progress(godwit_op op, uint64_t *done, uint64_t *total);
/* Ends it, wherever it is, and forgets it: nothing of it is published that was not yet. */
int godwit_cancel(godwit_op op);

struct godwit_memory {
    const void *data; /* cannot change */
    size_t size;
    int fd;           /* of the sealed file in memory */
    int reserved;
};

/* godwit_result() of gass_memory_begin(), with the bytes. */
int godwit_memory_result(godwit_op op, struct godwit_memory *memory);
int gass_memory(const char *name, struct godwit_memory *memory);
int godwit_memory_free(struct godwit_memory *memory);

/* The same, waiting. They return the number of bytes. */
int64_t gass_get(const char *name, uint64_t offset, void *buffer, size_t length);
int64_t gass_put(const char *name, const void *data, size_t length);
int64_t gass_copy(const char *from, const char *to);
/* One piece. */
int64_t gass_append(const char *name, const void *data, size_t length, int how);

/* ---- Bytes, wherever they are, whenever they get there --------------------------------------------------- */

/* Writes into a file, in place, and is not answered. Bytes are gathered for a millisecond, or 64 KiB, and leave the
 * process at the latest with the next call of godwit_get, _flush, _commit, _push, or exit(3). */
int godwit_put(const char *name, uint64_t offset, size_t length, const void *data);
/* Returns how many there were: fewer at the end of the file. Sees what this process has put. */
int64_t godwit_get(const char *name, uint64_t offset, size_t length, void *data);
/* All that was put leaves the process. */
int godwit_flush(void);
/* Return when all that this process wrote survives a crash of this machine; is at its target (of one file, or, with
 * NULL, all). timeout_ms: -1: as long as it takes. After a failure of the node (ECONNRESET), what was put since the last
 * godwit_commit() is to be put again. */
int godwit_commit(int timeout_ms);
int godwit_push(const char *name, int timeout_ms);

/* ---- Names of a catalog ---------------------------------------------------------------------------------- */

/* Receives one answer, which is good until it returns. Anything but 0 ends the call. */
typedef int (*godwit_answer)(void *context, const char *json);

/* Asks the catalog that GODWIT_CATALOG names, or changes it. `json` is a question, as {"locate":{"names":["run7/a"]}}, or
 * {"changes":[...]}; the schemas Question, Answer and Changes of the door (openapi.json) say what there is. `each` (NULL: none)
 * is told each answer; changes have one, a list with a number for each. After the answer "more" the next page is to be
 * asked for. Returns how many answers were told. All changes are durable then, or on failure none was made. */
int64_t godwit_catalog(const char *json, godwit_answer each, void *context);

/* ---- A directory that others see ------------------------------------------------------------------------- */

typedef struct gass_server gass_server;

struct gass_visit {
    const char *who;  /* as whom they proved themselves; NULL: they did not */
    const char *deed; /* "read", "write", "create", "delete", "list" */
    const char *path; /* below the directory, beginning with a slash; links are resolved */
};

/* Returns 1 if they may; whatever else it returns says no. */
typedef int (*gass_authorise)(void *context, const struct gass_visit *visit);

/* Returns where else it is what somebody would read, as a URL that is good until the next call, or NULL: then
 * `authorise` is asked. They are told, and a godwit goes there. */
typedef const char *(*gass_refer)(void *context, const struct gass_visit *visit);

/* Takes what others appended to "/dev/stdout" or "/dev/stderr" (`path`): whole lines, but for one that is longer than
 * 256 KiB, and the last. */
typedef void (*gass_print)(void *context, const char *path, const void *data, size_t length);

struct gass_server_options {
    size_t size;              /* sizeof(struct gass_server_options) */
    const char *listen;       /* as "127.0.0.1:0", which is used for NULL */
    const char *config;       /* NULL, or a file as `godwit node --config` reads: TLS, GSI, who may come */
    gass_authorise authorise; /* NULL: everybody may */
    void *context;            /* of all of these functions */
    int writes;               /* 0: nobody may change anything */
    int outputs;              /* 1: dev/stdout and dev/stderr of the directory, which are made, may be appended to */
    gass_print print;         /* NULL: this program prints what comes there on its own, when it calls gass_server_step() */
    gass_refer refer;         /* NULL: all is here */
};

/* Has the node of this machine serve a directory until gass_server_close(), or the end of this process. `options` may
 * be NULL. */
gass_server *gass_server_open(const char *directory, const struct gass_server_options *options);
/* Its URL, for others; good until the close. */
const char *gass_server_url(const gass_server *server);
/* Calls `authorise` for all who wait for it, and `print` for what came, after waiting for the first of either for
 * `timeout_ms` at most (-1: as long as it takes; 0: not). Returns how many waited. When godwit_fd() is readable it may have something to do. Who is not answered
 * within 30 s is refused. */
int gass_server_step(gass_server *server, int timeout_ms);
int gass_server_close(gass_server *server);

#ifdef __cplusplus
}
#endif

#endif
