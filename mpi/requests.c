/* requests.c: reads that do not block. The node fetches the bytes; the program's own call of a Wait or Test function
 * copies them, and completes the request. */
#include "file.h"

#include <stdlib.h>
#include <unistd.h>

enum { NAP_US = 200 };

struct reading {
    struct access access;
    godwit_op op;
    int is_ended; /* the bytes are in the memory of the program, or will not be */
    int class;
    int64_t moved;
    MPI_Request request;
    struct reading *next_request;
};

static void reading_free(struct reading *reading)
{
    access_end(&reading->access);
    free(reading);
}

struct reading *reading_begin(struct access *access)
{
    struct file *file = access->file;
    struct ranges ranges = {0};
    struct reading *reading = file->view.representation == NATIVE_BYTES ? calloc(1, sizeof *reading) : NULL;
    if (!reading)
        return NULL;
    view_ranges(&file->view, access->at, access->at + access->bytes, &ranges);
    if (ranges.bytes == access->bytes && !ranges.is_broken)
        reading->op = godwit_ensure_begin(file->shared, ranges.each, ranges.count);
    free(ranges.each);
    if (reading->op > 0) {
        reading->access = *access;
        return reading;
    }
    free(reading);
    return NULL;
}

/* Copies the bytes. If they did not come, this asks again, and tells why. */
static void take(struct reading *reading)
{
    godwit_wait(reading->op, -1);
    godwit_result(reading->op);
    reading->class = access_move(&reading->access, &reading->moved);
    reading->is_ended = 1;
}

int reading_end(struct reading *reading, int64_t *moved)
{
    take(reading);
    int class = reading->class;
    *moved = reading->moved;
    reading_free(reading);
    return class;
}

/* ---- Requests --------------------------------------------------------------------------------------------- */

/* Those that the program has, until it waited for them. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
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
    if (!reading->is_ended) {
        if (!waits && godwit_wait(reading->op, 0))
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
        usleep(NAP_US);
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
        usleep(NAP_US);
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
