/* Storm: all connections are begun at once; each sends one request and is done when its answer is complete.
 * Prints the result, then holds the connections until standard input ends, so that the broker's memory can be read. */
#define _GNU_SOURCE
#include "histogram.h"
#include "wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

typedef struct {
    int fd, asked, answered;
    size_t got, answer_size;
    uint8_t prefix[4];
} connection;

static int step(connection *c, const frame *request, int epoll) {
    uint8_t scratch[16384];
    int error = 0;
    socklen_t size = sizeof error;
    if (!c->asked) {
        getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &size);
        if (error) return -1;
        if (send(c->fd, request->bytes, request->size, MSG_NOSIGNAL) != (ssize_t)request->size) return -1;
        c->asked = 1;
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(epoll, EPOLL_CTL_MOD, c->fd, &event);
        return 0;
    }
    ssize_t n = recv(c->fd, scratch, sizeof scratch, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN)) return -1;
    if (n < 0) return 0;
    for (ssize_t i = 0; i < n && c->got + (size_t)i < 4; i++) c->prefix[c->got + (size_t)i] = scratch[i];
    c->got += (size_t)n;
    return c->got >= 4 && c->got >= get32(c->prefix) + 4u;
}

int run_storm(const options *o) {
    int count, failed = 0, answered = 0, refused = 0;
    frame *frames = read_frames(o->frames_path, &count);
    connection *all = calloc((size_t)o->connections, sizeof *all);
    histogram *latency = calloc(1, sizeof *latency);
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    double cpu = cpu_seconds_of(o->pid);
    uint64_t begin = now_ns(), limit = begin + (uint64_t)(o->seconds * 1e9);
    for (int i = 0; i < o->connections; i++) {
        all[i].fd = start_connect(o);
        if (all[i].fd < 0) {
            refused++;
            continue;
        }
        struct epoll_event event = {.events = EPOLLOUT, .data.ptr = &all[i]};
        epoll_ctl(epoll, EPOLL_CTL_ADD, all[i].fd, &event);
    }
    while (answered + failed + refused < o->connections && now_ns() < limit) {
        struct epoll_event events[512];
        int ready = epoll_wait(epoll, events, 512, 100);
        for (int i = 0; i < ready; i++) {
            connection *c = events[i].data.ptr;
            if (c->answered) continue;
            int outcome = step(c, &frames[0], epoll);
            if (!outcome) continue;
            c->answered = 1;
            if (outcome > 0) answered++, histogram_add(latency, now_ns() - begin);
            else failed++;
            epoll_ctl(epoll, EPOLL_CTL_DEL, c->fd, NULL);
        }
    }
    printf("{\"requests\": %d, \"seconds\": %.6f, \"errors\": %d, \"p50_us\": %.1f, \"p99_us\": %.1f, "
           "\"broker_cpu_s\": %.2f, \"client_cpu_s\": %.3f}\n",
           answered, (double)(now_ns() - begin) / 1e9, o->connections - answered,
           (double)histogram_quantile(latency, 0.5) / 1e3, (double)histogram_quantile(latency, 0.99) / 1e3,
           cpu_seconds_of(o->pid) - cpu, own_cpu_seconds());
    fflush(stdout);
    while (getchar() != EOF) {
    }
    return 0;
}
