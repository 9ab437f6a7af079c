/* hints.c: the keys of MPI_Info that a grid file knows. Values that mean nothing, and other keys, are passed over. */
#include "file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Reads the value of a key, cut to what fits; returns 1 if the key is there. */
static int value_of(MPI_Info info, const char *key, char *value, int size)
{
    int is_there = 0;
    PMPI_Info_get(info, key, size - 1, value, &is_there);
    return is_there;
}

/* Returns a number above 0, or 0. */
static uint32_t number_of(const char *text, uint32_t most)
{
    char *end;
    long long number = strtoll(text, &end, 10);
    return end != text && !*end && number > 0 && number <= most ? (uint32_t)number : 0;
}

void hints_read(struct hints *hints, MPI_Info info)
{
    char value[64];
    if (info == MPI_INFO_NULL)
        return;
    if (value_of(info, "ftp_control_mode", value, sizeof value))
        hints->is_stream = !strcasecmp(value, "stream");
    if (value_of(info, "parallelism", value, sizeof value))
        hints->parallelism = number_of(value, 256);
    if (value_of(info, "striped_ftp", value, sizeof value))
        hints->is_one_host = !strcasecmp(value, "false") || !strcasecmp(value, "disable");
    if (value_of(info, "tcp_buffer", value, sizeof value))
        hints->tcp_buffer = number_of(value, 1u << 30);
}

static void tell_number(MPI_Info info, const char *key, uint32_t number)
{
    char value[16] = "tuned";
    if (number)
        snprintf(value, sizeof value, "%u", number);
    PMPI_Info_set(info, key, value);
}

/* Doors are durable when they answer; what servers of FTP promise is that others see the bytes. */
static int is_durable(const char *url)
{
    return !strncmp(url, "godwit:", 7) || !strncmp(url, "https:", 6) || !strncmp(url, "grid:", 5);
}

void hints_tell(const struct file *file, MPI_Info info)
{
    const struct hints *hints = &file->hints;
    int is_ftp = !is_durable(file->url), is_stream = hints->is_stream && is_ftp;
    PMPI_Info_set(info, "ftp_control_mode", is_stream ? "stream" : "extended");
    PMPI_Info_set(info, "striped_ftp", hints->is_one_host || !is_ftp ? "false" : "true");
    PMPI_Info_set(info, "transfer_type", "binary"); /* as ASCII, bytes would have other offsets there */
    tell_number(info, "tcp_buffer", is_ftp ? hints->tcp_buffer : 0);
    tell_number(info, "parallelism", hints->is_stream ? 1 : hints->parallelism);
    PMPI_Info_set(info, "godwit_sync", is_ftp ? "visible" : "durable");
}
