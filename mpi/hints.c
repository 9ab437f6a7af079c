/* hints.c: the keys of MPI_Info that a grid file knows. Values that mean nothing, and other keys, are passed over. */
#include "file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Returns 1 if the key is there; its value is cut to what fits. */
static int value_of(MPI_Info info, const char *key, char *value, int size)
{
    int is_there = 0;
    PMPI_Info_get(info, key, size - 1, value, &is_there);
    return is_there;
}

/* Returns a number above 0, or `otherwise`. */
static uint32_t number_of(const char *text, uint32_t most, uint32_t otherwise)
{
    char *end;
    long long number = strtoll(text, &end, 10);
    return end != text && !*end && number > 0 && number <= most ? (uint32_t)number : otherwise;
}

void hints_read(struct hints *hints, MPI_Info info)
{
    char value[64];
    if (info == MPI_INFO_NULL)
        return;
    if (value_of(info, "ftp_control_mode", value, sizeof value))
        hints->is_stream = !strcasecmp(value, "stream");
    if (value_of(info, "parallelism", value, sizeof value))
        hints->parallelism = number_of(value, 1024, hints->parallelism);
    if (value_of(info, "striped_ftp", value, sizeof value))
        hints->is_striped = !strcasecmp(value, "true") || !strcasecmp(value, "enable");
    if (value_of(info, "tcp_buffer", value, sizeof value))
        hints->tcp_buffer = number_of(value, 1u << 30, hints->tcp_buffer);
    if (hints->is_stream && hints->parallelism)
        hints->parallelism = 1; /* stream mode has one connection */
}

static void tell_number(MPI_Info info, const char *key, uint32_t number)
{
    char value[16];
    snprintf(value, sizeof value, "%u", number);
    if (number)
        PMPI_Info_set(info, key, value);
    else
        PMPI_Info_set(info, key, "tuned");
}

/* Doors are durable when they answer; what servers of FTP promise is that others see the bytes. */
static int is_durable(const char *url)
{
    return !strncmp(url, "godwit:", 7) || !strncmp(url, "https:", 6) || !strncmp(url, "grid:", 5);
}

void hints_tell(const struct file *file, MPI_Info info)
{
    const struct hints *hints = &file->hints;
    /* What was asked for in these four changes no transfer yet. */
    PMPI_Info_set(info, "ftp_control_mode", "extended");
    PMPI_Info_set(info, "striped_ftp", "false");
    PMPI_Info_set(info, "transfer_type", "binary");
    PMPI_Info_set(info, "tcp_buffer", "tuned");
    tell_number(info, "parallelism", hints->is_stream ? 1 : hints->parallelism);
    PMPI_Info_set(info, "godwit_sync", is_durable(file->url) ? "durable" : "visible");
}
