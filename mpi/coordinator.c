/* coordinator.c: shared pointers and locks of files that several ranks have open.
 *
 * A thread of rank 0 keeps them, and answers by TCP, also while rank 0 computes. It makes no MPI call, and no signal
 * is delivered to it. Each rank has a connection for each file, from its first question on. */
#include "file.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum question { ADD, SET, LOCK, UNLOCK };
enum { CONNECT_MS = 10000, LISTENERS = 2 };

/* What a rank sends. The answer is one integer of 64 bits. */
struct message {
    uint64_t token[2], file;
    int64_t question, value;
};

/* ---- In rank 0 -------------------------------------------------------------------------------------------- */

/* What is known of a file as long as a rank has a connection for it. */
struct record {
    struct record *next;
    uint64_t file;
    int64_t pointer;
    int connections;
    struct visitor *holder;
};

struct visitor {
    struct visitor *next; /* in the order of their questions for the lock */
    int fd;
    struct record *record; /* NULL: it has not asked yet */
    int is_waiting;
    char message[sizeof(struct message)];
    size_t received;
};

/* Of this process, for all its files. The first listener is for this machine, the second for all. */
static struct {
    pthread_mutex_t lock; /* of what the thread does not own */
    uint64_t token[2], files;
    int listeners[LISTENERS];
    uint32_t ports[LISTENERS];
    int wake[2]; /* a new listener */
    int is_running;
} server = {.lock = PTHREAD_MUTEX_INITIALIZER, .listeners = {-1, -1}};

/* Those of the thread alone. */
static struct visitor **visitors;
static size_t visitor_count;
static struct record *records;
static struct visitor *waiting;

static void answer(struct visitor *visitor, int64_t value)
{
    /* An answer is shorter than what a socket takes; a rank that has ended needs none. */
    if (send(visitor->fd, &value, sizeof value, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof value)
        shutdown(visitor->fd, SHUT_RDWR);
}

/* Gives a lock that is free to the one who has waited longest. */
static void pass_lock(struct record *record)
{
    for (struct visitor **at = &waiting; *at; at = &(*at)->next) {
        struct visitor *visitor = *at;
        if (visitor->record != record)
            continue;
        *at = visitor->next;
        visitor->is_waiting = 0;
        record->holder = visitor;
        answer(visitor, 0);
        return;
    }
    record->holder = NULL;
}

static struct record *record_of(uint64_t file)
{
    struct record *record = records;
    while (record && record->file != file)
        record = record->next;
    if (!record && (record = calloc(1, sizeof *record))) {
        record->file = file;
        record->next = records;
        records = record;
    }
    return record;
}

/* Returns 0 if the visitor is to leave. */
static int serve_message(struct visitor *visitor)
{
    struct message message;
    memcpy(&message, visitor->message, sizeof message);
    visitor->received = 0;
    if (message.token[0] != server.token[0] || message.token[1] != server.token[1] || visitor->is_waiting)
        return 0;
    if (!visitor->record) {
        visitor->record = record_of(message.file);
        if (!visitor->record)
            return 0;
        visitor->record->connections++;
    }
    struct record *record = visitor->record;
    switch (message.question) {
    case ADD:
        answer(visitor, record->pointer);
        record->pointer += message.value;
        return 1;
    case SET:
        record->pointer = message.value;
        answer(visitor, 0);
        return 1;
    case LOCK: {
        struct visitor **last = &waiting;
        while (*last)
            last = &(*last)->next;
        *last = visitor;
        visitor->next = NULL;
        visitor->is_waiting = 1;
        if (!record->holder)
            pass_lock(record);
        return 1;
    }
    case UNLOCK:
        answer(visitor, 0);
        if (record->holder == visitor)
            pass_lock(record);
        return 1;
    default:
        return 0;
    }
}

/* Returns 0 if the visitor is to leave. */
static int receive(struct visitor *visitor)
{
    ssize_t got = recv(visitor->fd, visitor->message + visitor->received, sizeof visitor->message - visitor->received,
                       MSG_DONTWAIT);
    if (got < 0)
        return errno == EAGAIN || errno == EINTR;
    visitor->received += got;
    return got && (visitor->received < sizeof visitor->message || serve_message(visitor));
}

/* The lock of a rank that has ended is free. */
static void leave(size_t nth)
{
    struct visitor *visitor = visitors[nth];
    struct record *record = visitor->record;
    struct visitor **place = &waiting;
    while (*place && *place != visitor)
        place = &(*place)->next;
    if (*place)
        *place = visitor->next;
    if (record && record->holder == visitor)
        pass_lock(record);
    if (record && !--record->connections) {
        struct record **at = &records;
        while (*at != record)
            at = &(*at)->next;
        *at = record->next;
        free(record);
    }
    close(visitor->fd);
    free(visitor);
    visitors[nth] = visitors[--visitor_count];
}

static void welcome(int listener)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC), on = 1;
    struct visitor *visitor = fd < 0 ? NULL : calloc(1, sizeof *visitor);
    struct visitor **more = visitor ? realloc(visitors, (visitor_count + 1) * sizeof *visitors) : NULL;
    if (!more) {
        free(visitor);
        if (fd >= 0)
            close(fd);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    visitors = more;
    visitor->fd = fd;
    visitors[visitor_count++] = visitor;
}

static void *serve(void *unused)
{
    enum { OTHERS = LISTENERS + 1 };
    struct pollfd *polled = NULL;
    (void)unused;
    for (;;) {
        struct pollfd *more = realloc(polled, (visitor_count + OTHERS) * sizeof *polled);
        size_t count = visitor_count;
        char woken;
        if (!more)
            return NULL;
        polled = more;
        polled[0] = (struct pollfd){server.wake[0], POLLIN, 0};
        pthread_mutex_lock(&server.lock);
        for (int i = 0; i < LISTENERS; i++)
            polled[1 + i] = (struct pollfd){server.listeners[i], POLLIN, 0};
        pthread_mutex_unlock(&server.lock);
        for (size_t i = 0; i < count; i++)
            polled[OTHERS + i] = (struct pollfd){visitors[i]->fd, POLLIN, 0};
        poll(polled, count + OTHERS, -1);
        if (polled[0].revents && read(server.wake[0], &woken, 1) < 0)
            return NULL;
        /* From the last: one that leaves is replaced by one that was looked at. */
        for (size_t i = count; i-- > 0;)
            if (polled[OTHERS + i].revents && !receive(visitors[i]))
                leave(i);
        for (int i = 0; i < LISTENERS; i++)
            if (polled[1 + i].revents)
                welcome(polled[1 + i].fd);
    }
}

static int start_thread(void)
{
    sigset_t all, before;
    pthread_t thread;
    if (pipe2(server.wake, O_CLOEXEC) || getrandom(server.token, sizeof server.token, 0) != sizeof server.token)
        return -1;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    server.is_running = !pthread_create(&thread, NULL, serve, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (server.is_running)
        pthread_detach(thread);
    return server.is_running ? 0 : -1;
}

/* Listens on the loopback, or on all addresses. */
static int listen_on(int nth)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    address.sin_addr.s_addr = htonl(nth ? INADDR_ANY : INADDR_LOOPBACK);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) || listen(fd, 1024) ||
        getsockname(fd, (struct sockaddr *)&address, &size)) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    server.listeners[nth] = fd;
    server.ports[nth] = ntohs(address.sin_port);
    return write(server.wake[1], "", 1) == 1 ? 0 : -1;
}

/* Adds an address, if there is room, it is new, and others can reach it. */
static void add_address(struct coordinator *coordinator, const struct sockaddr *address)
{
    enum { MOST = sizeof coordinator->addresses / sizeof *coordinator->addresses - 1 }; /* one is for the loopback */
    uint32_t number;
    if (!address || address->sa_family != AF_INET)
        return;
    number = ((const struct sockaddr_in *)address)->sin_addr.s_addr;
    if (ntohl(number) >> 24 == 127)
        return;
    for (int i = 0; i < MOST; i++) {
        if (coordinator->addresses[i] == number)
            return;
        if (!coordinator->addresses[i]) {
            coordinator->addresses[i] = number;
            return;
        }
    }
}

/* The address that the name of this machine stands for is first: other machines know it by that. */
static void find_addresses(struct coordinator *coordinator)
{
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found = NULL;
    struct ifaddrs *all = NULL;
    char name[256] = "";
    int last = 0;
    gethostname(name, sizeof name - 1);
    if (!getaddrinfo(name, NULL, &hints, &found)) {
        for (struct addrinfo *at = found; at; at = at->ai_next)
            add_address(coordinator, at->ai_addr);
        freeaddrinfo(found);
    }
    if (!getifaddrs(&all)) {
        for (struct ifaddrs *at = all; at; at = at->ifa_next)
            add_address(coordinator, at->ifa_addr);
        freeifaddrs(all);
    }
    while (coordinator->addresses[last])
        last++;
    coordinator->addresses[last] = htonl(INADDR_LOOPBACK);
}

int coordinator_begin(struct coordinator *coordinator, int is_near)
{
    int failed, nth = !is_near;
    pthread_mutex_lock(&server.lock);
    failed = (!server.is_running && start_thread()) || (server.listeners[nth] < 0 && listen_on(nth));
    coordinator->file = ++server.files;
    memcpy(coordinator->token, server.token, sizeof server.token);
    coordinator->port = server.ports[nth];
    pthread_mutex_unlock(&server.lock);
    if (is_near)
        coordinator->addresses[0] = htonl(INADDR_LOOPBACK);
    else
        find_addresses(coordinator);
    return failed ? -1 : 0;
}

/* ---- In every rank ---------------------------------------------------------------------------------------- */

struct link {
    struct coordinator coordinator;
    int is_alone; /* no other rank has the file open: it is its own coordinator */
    int fd;       /* -1: not connected yet */
    int64_t pointer;
    pthread_mutex_t talk;   /* one question at a time */
    pthread_mutex_t access; /* threads of this rank wait for each other before they wait for other ranks */
};

struct link *link_new(const struct coordinator *coordinator)
{
    struct link *link = calloc(1, sizeof *link);
    if (!link)
        return NULL;
    if (coordinator)
        link->coordinator = *coordinator;
    link->is_alone = !coordinator;
    link->fd = -1;
    pthread_mutex_init(&link->talk, NULL);
    pthread_mutex_init(&link->access, NULL);
    return link;
}

void link_free(struct link *link)
{
    if (link && link->fd >= 0)
        close(link->fd);
    free(link);
}

static int connect_to(uint32_t number, uint32_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = number};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    struct timeval limit = {.tv_sec = CONNECT_MS / 1000}, none = {0};
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit); /* also that of connect(2) */
    if (connect(fd, (struct sockaddr *)&address, sizeof address)) {
        close(fd);
        return -1;
    }
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &none, sizeof none);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

/* Returns 0, or -1 when the coordinator is gone. */
static int exchange(int fd, const struct message *message, int64_t *told)
{
    size_t received = 0;
    if (send(fd, message, sizeof *message, MSG_NOSIGNAL) != sizeof *message)
        return -1;
    while (received < sizeof *told) {
        ssize_t got = recv(fd, (char *)told + received, sizeof *told - received, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return -1;
        received += got;
    }
    return 0;
}

static int ask(struct file *file, enum question question, int64_t value, int64_t *told)
{
    struct link *link = file->link;
    const struct coordinator *coordinator = &link->coordinator;
    struct message message = {.file = coordinator->file, .question = question, .value = value};
    int failed = 1;
    memcpy(message.token, coordinator->token, sizeof message.token);
    pthread_mutex_lock(&link->talk);
    if (link->is_alone) {
        *told = link->pointer;
        link->pointer = question == SET ? value : link->pointer + (question == ADD ? value : 0);
        pthread_mutex_unlock(&link->talk);
        return MPI_SUCCESS;
    }
    for (int i = 0; link->fd < 0 && i < 8 && coordinator->addresses[i]; i++)
        link->fd = connect_to(coordinator->addresses[i], coordinator->port);
    if (link->fd >= 0)
        failed = exchange(link->fd, &message, told);
    pthread_mutex_unlock(&link->talk);
    if (!failed)
        return MPI_SUCCESS;
    return report("share the pointer or the lock of", file->url, MPI_ERR_IO,
                  "rank 0 of the file does not answer by TCP; have a look at the firewall between the machines");
}

int shared_add(struct file *file, int64_t etypes, int64_t *before)
{
    return ask(file, ADD, etypes, before);
}

int shared_set(struct file *file, int64_t etypes)
{
    int64_t told;
    return ask(file, SET, etypes, &told);
}

int lock_file(struct file *file)
{
    int64_t told;
    pthread_mutex_lock(&file->link->access);
    int class = ask(file, LOCK, 0, &told);
    if (class)
        pthread_mutex_unlock(&file->link->access);
    return class;
}

int unlock_file(struct file *file)
{
    int64_t told;
    int class = ask(file, UNLOCK, 0, &told);
    pthread_mutex_unlock(&file->link->access);
    return class;
}
