/* Closed loop: each connection keeps `depth` requests in flight and sends the next when an answer is complete.
 * Answers are checked (length, correlation id, one error code, one offset) and otherwise dropped in the kernel with
 * MSG_TRUNC.  What is appended lies behind what this connection had appended to the partition before; what is fetched
 * begins where the fetch did. */
#define _GNU_SOURCE
#include "histogram.h"
#include "wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define HEAD 512
#define MAX_DEPTH 64
#define SCRATCH (64 * 1024)

typedef struct {
    int fd, writable_wanted;
    frame request;
    size_t sent;        /* bytes of the present request that the kernel took; 0: none begun */
    uint32_t next_id, awaited_id;
    uint64_t started[MAX_DEPTH];
    int next_frame;     /* with --rotate: the frame of the next request */
    int sent_frame, frame_of[MAX_DEPTH];
    int64_t *last;      /* by frame: the offset that its last answer told, -1 before the first */
    uint8_t head[HEAD]; /* begin of the answer */
    size_t answer_size, got; /* size with its prefix, once known */
    uint64_t offset;
} connection;

typedef struct {
    const options *o;
    const frame *frames;
    int epoll, frames_count;
    uint64_t requests, bytes_out, bytes_in, errors, now;
    histogram latency;
    uint8_t scratch[SCRATCH];
} state;

static void want_write(state *s, connection *c, int wanted) {
    if (c->writable_wanted == wanted) return;
    struct epoll_event event = {.events = EPOLLIN | (wanted ? (uint32_t)EPOLLOUT : 0u), .data.ptr = c};
    epoll_ctl(s->epoll, EPOLL_CTL_MOD, c->fd, &event);
    c->writable_wanted = wanted;
}

/* The connections together go round all frames, each with a stride of their number. */
static void take_next_frame(state *s, connection *c) {
    const frame *from = &s->frames[c->next_frame];
    memcpy(c->request.bytes, from->bytes, from->size);
    c->request.size = from->size;
    c->sent_frame = c->next_frame;
    c->next_frame = (c->next_frame + s->o->connections) % s->frames_count;
}

static void send_more(state *s, connection *c) {
    while (c->sent || c->next_id - c->awaited_id < (uint32_t)s->o->depth) {
        if (!c->sent) {
            if (s->o->rotate) take_next_frame(s, c);
            put32(c->request.bytes + 8, c->next_id);
            if (s->o->offset_at >= 0) put64(c->request.bytes + s->o->offset_at, c->offset);
            c->started[c->next_id % MAX_DEPTH] = now_ns();
            c->frame_of[c->next_id % MAX_DEPTH] = c->sent_frame;
            c->next_id++;
        }
        ssize_t n = send(c->fd, c->request.bytes + c->sent, c->request.size - c->sent, MSG_NOSIGNAL);
        if (n < 0) {
            if (errno != EAGAIN) die("send: %s", strerror(errno));
            if (!c->sent) die("a new request found no room in the socket");
            n = 0;
        }
        c->sent += (size_t)n;
        if (c->sent < c->request.size) {
            want_write(s, c, 1);
            return;
        }
        s->bytes_out += c->sent;
        c->sent = 0;
    }
    want_write(s, c, 0);
}

/* Where the broker says that records are. */
static void check_offset(const options *o, connection *c) {
    const uint8_t *at = c->head + o->base_at;
    if (o->offset_at < 0) {
        int64_t *last = &c->last[c->frame_of[c->awaited_id % MAX_DEPTH]], base = (int64_t)get64(at);
        if (base <= *last) die("offset %lld behind %lld", (long long)base, (long long)*last);
        *last = base;
        return;
    }
    while (*at++ & 0x80) continue; /* the records' size */
    if (get64(at) != c->offset) die("records from %llu, not %llu", (unsigned long long)get64(at), (unsigned long long)c->offset);
}

static void finish_answer(state *s, connection *c) {
    const options *o = s->o;
    uint64_t end = now_ns();
    if (get32(c->head + 4) != c->awaited_id) die("answers out of order");
    if (o->check_at >= 0 && (c->head[o->check_at] || c->head[o->check_at + 1])) s->errors++;
    else if (o->base_at >= 0) check_offset(o, c);
    if (o->offset_at >= 0) {
        uint64_t batches = c->answer_size / (size_t)o->batch_bytes;
        if (!batches) s->errors++;
        c->offset += batches * (uint64_t)o->batch_records;
        if (c->offset >= (uint64_t)o->end_offset) c->offset = 0;
    }
    histogram_add(&s->latency, end - c->started[c->awaited_id % MAX_DEPTH]);
    s->now = end;
    s->requests++;
    s->bytes_in += c->answer_size;
    c->awaited_id++;
    c->answer_size = c->got = 0;
}

/* Take what the kernel has.  The first bytes of an answer are kept, the others only counted. */
static void receive(state *s, connection *c) {
    ssize_t n;
    if (c->answer_size > HEAD && c->got >= HEAD)
        n = recv(c->fd, NULL, c->answer_size - c->got, MSG_TRUNC);
    else
        n = recv(c->fd, s->scratch, SCRATCH, 0);
    if (n == 0) die("the broker closed a connection");
    if (n < 0) {
        if (errno == EAGAIN) return;
        die("recv: %s", strerror(errno));
    }
    size_t left = (size_t)n;
    const uint8_t *from = s->scratch;
    while (left) {
        size_t take = left;
        if (!c->answer_size && c->got + left > 4) {
            if (c->got < 4) {
                size_t need = 4 - c->got;
                memcpy(c->head + c->got, from, need);
                c->got += need, from += need, left -= need;
            }
            c->answer_size = get32(c->head) + 4u;
            take = left;
        }
        if (c->answer_size && take > c->answer_size - c->got) take = c->answer_size - c->got;
        if (c->got < HEAD) memcpy(c->head + c->got, from, take < HEAD - c->got ? take : HEAD - c->got);
        c->got += take, from += take, left -= take;
        if (c->answer_size && c->got == c->answer_size) finish_answer(s, c);
    }
    send_more(s, c);
}

int run_closed(const options *o) {
    state *s = calloc(1, sizeof *s);
    connection *all = calloc((size_t)o->connections, sizeof *all);
    int frames_count;
    size_t largest = 0;
    frame *frames = read_frames(o->frames_path, &frames_count);
    for (int i = 0; i < frames_count; i++)
        if (frames[i].size > largest) largest = frames[i].size;
    if (o->depth < 1 || o->depth > MAX_DEPTH) die("depth must be 1 to %d", MAX_DEPTH);
    s->o = o, s->frames = frames, s->frames_count = frames_count;
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    for (int i = 0; i < o->connections; i++) {
        connection *c = &all[i];
        frame *from = &frames[i % frames_count];
        c->request = (frame){malloc(largest), from->size};
        c->next_frame = c->sent_frame = i % frames_count;
        c->last = malloc((size_t)frames_count * sizeof *c->last);
        for (int j = 0; j < frames_count; j++) c->last[j] = -1;
        memcpy(c->request.bytes, from->bytes, from->size);
        c->fd = connect_now(o);
        if (o->offset_at >= 0) /* connections read from different places, like independent consumers */
            c->offset = (uint64_t)(o->end_offset / o->batch_records * i / o->connections) * (uint64_t)o->batch_records;
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(s->epoll, EPOLL_CTL_ADD, c->fd, &event);
    }
    uint64_t begin = now_ns(), border = begin + (uint64_t)(o->warm * 1e9), stop = UINT64_MAX;
    double cpu = 0, own = 0;
    int measuring = 0;
    for (int i = 0; i < o->connections; i++) send_more(s, &all[i]);
    s->now = now_ns();
    while (s->now < stop && !(measuring && o->max_requests && s->requests >= (uint64_t)o->max_requests)) {
        struct epoll_event events[128];
        int ready = epoll_wait(s->epoll, events, 128, 10000);
        if (ready < 0 && errno == EINTR) continue;  /* It was stopped, and goes on. */
        if (ready <= 0) die("no answer within 10 s");
        for (int i = 0; i < ready; i++) {
            connection *c = events[i].data.ptr;
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive(s, c);
            if (events[i].events & EPOLLOUT) send_more(s, c);
        }
        if (measuring) continue;
        s->now = now_ns();
        if (s->now >= border || (o->max_requests && s->requests >= (uint64_t)o->max_requests / WARM_PART)) {
            measuring = 1;
            s->requests = s->bytes_in = s->bytes_out = s->errors = 0;
            histogram_reset(&s->latency);
            cpu = cpu_seconds_of(o->pid), own = own_cpu_seconds();
            begin = s->now, stop = begin + (uint64_t)(o->seconds * 1e9);
        }
    }
    cpu = cpu_seconds_of(o->pid) - cpu, own = own_cpu_seconds() - own;
    printf("{\"requests\": %llu, \"seconds\": %.6f, \"bytes_out\": %llu, \"bytes_in\": %llu, \"errors\": %llu, "
           "\"p50_us\": %.1f, \"p90_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, \"max_us\": %.1f, "
           "\"broker_cpu_s\": %.2f, \"client_cpu_s\": %.3f}\n",
           (unsigned long long)s->requests, (double)(s->now - begin) / 1e9, (unsigned long long)s->bytes_out,
           (unsigned long long)s->bytes_in, (unsigned long long)s->errors,
           (double)histogram_quantile(&s->latency, 0.5) / 1e3, (double)histogram_quantile(&s->latency, 0.9) / 1e3,
           (double)histogram_quantile(&s->latency, 0.99) / 1e3, (double)histogram_quantile(&s->latency, 0.999) / 1e3,
           (double)s->latency.max / 1e3, cpu, own);
    return 0;
}
