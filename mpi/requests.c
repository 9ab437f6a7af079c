/* requests.c: reads that do not block. Threads of the library wait for bytes from the server, and make no MPI call.
 * The program's own call of a Wait or Test function copies them, and completes the request. */
#include "file.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { THREADS = 8 };
static const int64_t nap_ns = 200 * 1000;

struct reading {
    struct reading *next; /* in the order of the queue */
    struct access access;
    struct ranges ranges;
    int is_here;  /* the bytes, or the failure */
    int is_ended; /* they are in the memory of the program, or will not be */
    int class;
    int64_t moved;
    MPI_Request request;
    struct reading *next_request;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t queued = PTHREAD_COND_INITIALIZER, arrived = PTHREAD_COND_INITIALIZER;
static struct reading *queue, **queue_end = &queue;
static int threads, idle;

/* ---- Threads ---------------------------------------------------------------------------------------------- */

/* Takes all reads of one file that no other thread fetches for: they become one transfer. Called with the lock. */
static struct reading *next_batch(void)
{
    struct reading *batch = NULL, **end = &batch, **at = &queue;
    struct file *file = NULL;
    while (*at) {
        struct reading *reading = *at;
        if (!file && !reading->access.file->is_fetching)
            file = reading->access.file;
        if (reading->access.file != file) {
            at = &reading->next;
            continue;
        }
        *at = reading->next;
        reading->next = NULL;
        *end = reading;
        end = &reading->next;
    }
    queue_end = at;
    if (file)
        file->is_fetching = 1;
    return batch;
}

static int ensure_batch(const struct reading *batch)
{
    const struct file *file = batch->access.file;
    size_t count = 0, at = 0;
    for (const struct reading *reading = batch; reading; reading = reading->next)
        count += reading->ranges.count;
    struct godwit_range *all = malloc(count * sizeof *all);
    if (!all)
        return report("read", file->url, MPI_ERR_NO_MEM, "no memory");
    for (const struct reading *reading = batch; reading; at += reading->ranges.count, reading = reading->next)
        memcpy(all + at, reading->ranges.each, reading->ranges.count * sizeof *all);
    int class = godwit_ensure(file->fd, all, count) ? report_grid() : MPI_SUCCESS;
    free(all);
    return class;
}

static void *fetch(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&lock);
    for (;;) {
        struct reading *batch;
        while (!(batch = next_batch())) {
            idle++;
            pthread_cond_wait(&queued, &lock);
            idle--;
        }
        pthread_mutex_unlock(&lock);
        int class = ensure_batch(batch);
        pthread_mutex_lock(&lock);
        batch->access.file->is_fetching = 0;
        for (; batch; batch = batch->next) {
            batch->class = class;
            batch->is_here = 1;
        }
        pthread_cond_broadcast(&arrived);
    }
    return NULL;
}

/* Called with the lock. No signal is delivered to the thread. */
static int start_thread(void)
{
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&thread, NULL, fetch, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        return -1;
    pthread_detach(thread);
    threads++;
    return 0;
}

static void reading_free(struct reading *reading)
{
    access_end(&reading->access);
    free(reading->ranges.each);
    free(reading);
}

struct reading *reading_begin(struct access *access)
{
    struct reading *reading = calloc(1, sizeof *reading);
    if (!reading || access->file->view.representation != NATIVE_BYTES)
        goto at_once;
    view_ranges(&access->file->view, access->at, access->at + access->bytes, &reading->ranges);
    if (!reading->ranges.count || reading->ranges.bytes < access->bytes || reading->ranges.is_broken)
        goto at_once;
    pthread_mutex_lock(&lock);
    if (!idle && threads < THREADS && start_thread() && !threads) {
        pthread_mutex_unlock(&lock);
        goto at_once;
    }
    reading->access = *access;
    *queue_end = reading;
    queue_end = &reading->next;
    pthread_cond_signal(&queued);
    pthread_mutex_unlock(&lock);
    return reading;
at_once:
    if (reading)
        free(reading->ranges.each);
    free(reading);
    return NULL;
}

/* Copies the bytes, when they are here. */
static void take(struct reading *reading)
{
    if (!reading->class)
        reading->class = access_take(&reading->access, &reading->ranges, &reading->moved);
    reading->is_ended = 1;
}

static void wait_for(struct reading *reading)
{
    pthread_mutex_lock(&lock);
    while (!reading->is_here)
        pthread_cond_wait(&arrived, &lock);
    pthread_mutex_unlock(&lock);
}

int reading_end(struct reading *reading, int64_t *moved)
{
    wait_for(reading);
    take(reading);
    int class = reading->class;
    *moved = reading->moved;
    reading_free(reading);
    return class;
}

/* ---- Requests --------------------------------------------------------------------------------------------- */

/* Those that the program has, until it waited for them. */
static struct reading *requests;
static int request_count;

static int is_idle(void)
{
    return !__atomic_load_n(&request_count, __ATOMIC_ACQUIRE);
}

static struct reading *reading_of(MPI_Request request)
{
    pthread_mutex_lock(&lock);
    struct reading *reading = requests;
    while (reading && reading->request != request)
        reading = reading->next_request;
    pthread_mutex_unlock(&lock);
    return reading;
}

static int tell_status(MPI_Status *status, int64_t moved)
{
    set_status(status, moved);
    status->MPI_SOURCE = status->MPI_TAG = MPI_UNDEFINED;
    return MPI_SUCCESS;
}

static int query_reading(void *context, MPI_Status *status)
{
    return tell_status(status, ((struct reading *)context)->moved);
}

static int free_reading(void *context)
{
    struct reading *reading = context, **at = &requests;
    pthread_mutex_lock(&lock);
    while (*at && *at != reading)
        at = &(*at)->next_request;
    if (*at)
        *at = reading->next_request;
    __atomic_sub_fetch(&request_count, 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
    reading_free(reading);
    return MPI_SUCCESS;
}

static int query_done(void *context, MPI_Status *status)
{
    return tell_status(status, (int64_t)(intptr_t)context);
}

static int free_done(void *context)
{
    (void)context;
    return MPI_SUCCESS;
}

/* What is on its way comes all the same, as for a receive that has been matched. */
static int cancel(void *context, int is_complete)
{
    (void)context;
    (void)is_complete;
    return MPI_SUCCESS;
}

int request_of_done(int64_t moved, MPI_Request *request)
{
    int code = PMPI_Grequest_start(query_done, free_done, cancel, (void *)(intptr_t)moved, request);
    return code ? code : PMPI_Grequest_complete(*request);
}

int request_of_reading(struct reading *reading, MPI_Request *request)
{
    int code = PMPI_Grequest_start(query_reading, free_reading, cancel, reading, request);
    if (code)
        return code;
    pthread_mutex_lock(&lock);
    reading->request = *request;
    reading->next_request = requests;
    requests = reading;
    __atomic_add_fetch(&request_count, 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
    return MPI_SUCCESS;
}

/* ---- Waits and tests -------------------------------------------------------------------------------------- */

/* How requests of an array failed, by their places. */
struct failures {
    int *class;
    MPI_File *handle;
    int count, pending; /* requests of ours that wait for their bytes */
};

/* Completes a request whose bytes are here, or waits for them. Returns 1 if it is not complete. */
static int settle(struct failures *failures, int nth, MPI_Request request, int waits)
{
    struct reading *reading = reading_of(request);
    if (!reading)
        return 0;
    if (waits)
        wait_for(reading);
    if (!reading->is_ended) {
        pthread_mutex_lock(&lock);
        int is_here = reading->is_here;
        pthread_mutex_unlock(&lock);
        if (!is_here)
            return 1;
        take(reading);
        PMPI_Grequest_complete(reading->request);
    }
    if (failures->class) {
        failures->class[nth] = reading->class;
        failures->handle[nth] = reading->access.file->handle;
    }
    return 0;
}

static void settle_all(struct failures *failures, int count, MPI_Request *of, int waits)
{
    if (!failures->class) {
        failures->count = count;
        failures->class = calloc(count + 1, sizeof *failures->class);
        failures->handle = calloc(count + 1, sizeof *failures->handle);
        if (!failures->handle) {
            free(failures->class);
            failures->class = NULL;
        }
    }
    failures->pending = 0;
    for (int i = 0; i < count; i++)
        failures->pending += settle(failures, i, of[i], waits);
}

static int failed(const struct failures *failures, int nth)
{
    return failures->class && nth >= 0 && nth < failures->count ? failures->class[nth] : MPI_SUCCESS;
}

/* Raises the failure of a request that has completed. */
static int raise_one(struct failures *failures, int nth, int code)
{
    int class = failed(failures, nth);
    if (class)
        PMPI_File_call_errhandler(failures->handle[nth], class);
    free(failures->class);
    free(failures->handle);
    return class ? class : code;
}

/* Raises those of several, by their places or all; statuses tell which. */
static int raise_some(struct failures *failures, int count, const int *places, MPI_Status *statuses, int code)
{
    int first = -1;
    for (int i = count - 1; i >= 0; i--)
        if (failed(failures, places ? places[i] : i))
            first = places ? places[i] : i;
    for (int i = 0; first >= 0 && statuses != MPI_STATUSES_IGNORE && i < count; i++)
        statuses[i].MPI_ERROR = failed(failures, places ? places[i] : i);
    code = first >= 0 ? MPI_ERR_IN_STATUS : code;
    return raise_one(failures, first, code) ? code : MPI_SUCCESS;
}

/* Waits a little, or until bytes of some reading arrive. */
static void nap(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += nap_ns;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&lock);
    pthread_cond_timedwait(&arrived, &lock, &until);
    pthread_mutex_unlock(&lock);
}

BOTH(Wait, (MPI_Request *request, MPI_Status *status))
{
    struct failures failures = {0};
    if (is_idle())
        return NATIVE(PMPI_Wait)(request, status);
    settle_all(&failures, 1, request, 1);
    return raise_one(&failures, 0, NATIVE(PMPI_Wait)(request, status));
}

BOTH(Test, (MPI_Request *request, int *flag, MPI_Status *status))
{
    struct failures failures = {0};
    if (is_idle())
        return NATIVE(PMPI_Test)(request, flag, status);
    settle_all(&failures, 1, request, 0);
    int code = NATIVE(PMPI_Test)(request, flag, status);
    return raise_one(&failures, *flag ? 0 : -1, code);
}

BOTH(Waitall, (int count, MPI_Request requests_of[], MPI_Status statuses[]))
{
    struct failures failures = {0};
    if (is_idle())
        return NATIVE(PMPI_Waitall)(count, requests_of, statuses);
    settle_all(&failures, count, requests_of, 1);
    int code = NATIVE(PMPI_Waitall)(count, requests_of, statuses);
    return raise_some(&failures, count, NULL, statuses, code);
}

BOTH(Testall, (int count, MPI_Request requests_of[], int *flag, MPI_Status statuses[]))
{
    struct failures failures = {0};
    if (is_idle())
        return NATIVE(PMPI_Testall)(count, requests_of, flag, statuses);
    settle_all(&failures, count, requests_of, 0);
    int code = NATIVE(PMPI_Testall)(count, requests_of, flag, statuses);
    return raise_some(&failures, *flag ? count : 0, NULL, statuses, code);
}

BOTH(Testany, (int count, MPI_Request requests_of[], int *nth, int *flag, MPI_Status *status))
{
    struct failures failures = {0};
    if (is_idle())
        return NATIVE(PMPI_Testany)(count, requests_of, nth, flag, status);
    settle_all(&failures, count, requests_of, 0);
    int code = NATIVE(PMPI_Testany)(count, requests_of, nth, flag, status);
    return raise_one(&failures, *flag ? *nth : -1, code);
}

BOTH(Testsome, (int count, MPI_Request requests_of[], int *done, int nth[], MPI_Status statuses[]))
{
    struct failures failures = {0};
    if (is_idle())
        return NATIVE(PMPI_Testsome)(count, requests_of, done, nth, statuses);
    settle_all(&failures, count, requests_of, 0);
    int code = NATIVE(PMPI_Testsome)(count, requests_of, done, nth, statuses);
    return raise_some(&failures, *done == MPI_UNDEFINED ? 0 : *done, nth, statuses, code);
}

/* Messages go on while reads are waited for. */
BOTH(Waitany, (int count, MPI_Request requests_of[], int *nth, MPI_Status *status))
{
    struct failures failures = {0};
    int code, flag = 0;
    if (is_idle())
        return NATIVE(PMPI_Waitany)(count, requests_of, nth, status);
    for (;;) {
        settle_all(&failures, count, requests_of, 0);
        if (!failures.pending)
            code = NATIVE(PMPI_Waitany)(count, requests_of, nth, status);
        else
            code = NATIVE(PMPI_Testany)(count, requests_of, nth, &flag, status);
        if (!failures.pending || flag || code)
            return raise_one(&failures, *nth, code);
        nap();
    }
}

BOTH(Waitsome, (int count, MPI_Request requests_of[], int *done, int nth[], MPI_Status statuses[]))
{
    struct failures failures = {0};
    int code;
    if (is_idle())
        return NATIVE(PMPI_Waitsome)(count, requests_of, done, nth, statuses);
    for (;;) {
        settle_all(&failures, count, requests_of, 0);
        if (!failures.pending)
            code = NATIVE(PMPI_Waitsome)(count, requests_of, done, nth, statuses);
        else
            code = NATIVE(PMPI_Testsome)(count, requests_of, done, nth, statuses);
        if (!failures.pending || *done || code)
            return raise_some(&failures, *done == MPI_UNDEFINED ? 0 : *done, nth, statuses, code);
        nap();
    }
}

BOTH(Request_get_status, (MPI_Request request, int *flag, MPI_Status *status))
{
    struct failures failures = {0};
    if (!is_idle())
        settle(&failures, 0, request, 0);
    return NATIVE(PMPI_Request_get_status)(request, flag, status);
}

/* Its bytes come into the memory of the program before the request is gone. */
BOTH(Request_free, (MPI_Request *request))
{
    struct failures failures = {0};
    if (is_idle())
        return NATIVE(PMPI_Request_free)(request);
    settle_all(&failures, 1, request, 1);
    return raise_one(&failures, 0, NATIVE(PMPI_Request_free)(request));
}
