#define _GNU_SOURCE
#include "wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

_Noreturn void die(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fprintf(stderr, "loadgen: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    exit(2);
}

uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

double cpu_seconds_of(int pid) {
    char path[64], line[1024];
    unsigned long user, system;
    if (pid <= 0) return 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file) die("no process %d", pid);
    size_t size = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[size] = 0;
    const char *rest = strrchr(line, ')'); /* the command's name may hold anything */
    if (!rest || sscanf(rest + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2)
        die("can't read %s", path);
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

double own_cpu_seconds(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

void need_files(int count) {
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    if ((rlim_t)count + 50 > files.rlim_max) die("the limit of open files, %lu, is too low", (unsigned long)files.rlim_max);
}

uint32_t get32(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}
uint64_t get64(const uint8_t *at) { return (uint64_t)get32(at) << 32 | get32(at + 4); }
void put32(uint8_t *at, uint32_t value) {
    for (int i = 3; i >= 0; i--, value >>= 8) at[i] = (uint8_t)value;
}
void put64(uint8_t *at, uint64_t value) {
    put32(at, (uint32_t)(value >> 32));
    put32(at + 4, (uint32_t)value);
}

/* A file of frames one after the other, each with its own length prefix. */
frame *read_frames(const char *path, int *count) {
    FILE *file = fopen(path, "rb");
    if (!file) die("can't open %s: %s", path, strerror(errno));
    frame *frames = NULL;
    uint8_t prefix[4];
    *count = 0;
    while (fread(prefix, 1, 4, file) == 4) {
        size_t size = get32(prefix) + 4u;
        frames = realloc(frames, sizeof(frame) * (size_t)(*count + 1));
        frame *one = &frames[(*count)++];
        one->bytes = malloc(size);
        one->size = size;
        if (!one->bytes) die("out of memory");
        memcpy(one->bytes, prefix, 4);
        if (fread(one->bytes + 4, 1, size - 4, file) != size - 4) die("%s ends within a frame", path);
    }
    fclose(file);
    if (!*count) die("%s holds no frame", path);
    return frames;
}

int start_connect(const options *o) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)o->port)};
    int one = 1;
    if (inet_pton(AF_INET, o->host, &address.sin_addr) != 1) die("%s is no IPv4 address", o->host);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) die("socket: %s", strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (o->congestion && *o->congestion &&
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, o->congestion, (socklen_t)strlen(o->congestion)))
        die("congestion control %s: %s", o->congestion, strerror(errno));
    if (connect(fd, (struct sockaddr *)&address, sizeof address) && errno != EINPROGRESS) {
        close(fd);
        return -1;
    }
    return fd;
}

int connect_now(const options *o) {
    int fd = start_connect(o), error = 0;
    socklen_t size = sizeof error;
    if (fd < 0) die("can't connect to %s:%d", o->host, o->port);
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    int ready;
    do ready = poll(&wait, 1, 10000);
    while (ready < 0 && errno == EINTR);
    if (ready != 1) die("%s:%d doesn't answer", o->host, o->port);
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error) die("can't connect to %s:%d: %s", o->host, o->port, strerror(error));
    return fd;
}
