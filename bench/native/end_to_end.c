/* End to end: one connection produces a record at a fixed rate without waiting for answers, each to the next partition;
 * another one long-polls all of them.  A record's latency runs from its send() until the answer that holds it is
 * complete.  The file has a produce request for each partition, 0 and up, and a fetch request that names them in this
 * order; what it asks for must be the end of each. */
#define _GNU_SOURCE
#include "histogram.h"
#include "wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define ANSWER_MAX (4 * 1024 * 1024)
#define BATCH_HEADER 61
#define ROW_HEAD (4 + 2 + 3 * 8 + 1 + 4) /* index, error, offsets, no aborted transactions, preferred replica */

typedef struct {
    const options *o;
    int producer, consumer;
    frame *produce, fetch;
    uint64_t partitions, *starts, *ends; /* of each partition: the first offset of this run, the next one to come */
    uint64_t *sent_at;
    uint64_t sent, planned, received, measure_from, max_batch;
    uint8_t *answer;
    size_t got;
    histogram latency;
} state;

static void send_whole(int fd, const frame *f) {
    if (send(fd, f->bytes, f->size, MSG_NOSIGNAL) != (ssize_t)f->size) die("a small request found no room in the socket");
}

static uint64_t read_uvarint(const uint8_t *at, size_t *used) {
    uint64_t value = 0;
    for (*used = 0; *used < 5; (*used)++) {
        value |= (uint64_t)(at[*used] & 0x7f) << (7 * *used);
        if (!(at[*used] & 0x80)) {
            (*used)++;
            return value;
        }
    }
    die("a length has more than 5 bytes");
}

static void take_records(state *s, uint64_t partition, size_t at, size_t end, uint64_t now) {
    uint64_t *next = &s->ends[partition];
    while (at + BATCH_HEADER <= end) {
        uint64_t last = get64(s->answer + at) + get32(s->answer + at + 23);
        at += 12 + get32(s->answer + at + 8);
        if (at > end || (last - s->starts[partition]) * s->partitions + partition >= s->sent) break;
        for (; *next <= last; (*next)++, s->received++) {
            uint64_t number = (*next - s->starts[partition]) * s->partitions + partition;
            if (number >= s->measure_from) histogram_add(&s->latency, now - s->sent_at[number]);
        }
    }
    put64(s->fetch.bytes + s->o->offset_at + (long)partition * s->o->row_bytes, *next);
}

static void take_answer(state *s, size_t size) {
    uint64_t now = now_ns(), before = s->received;
    size_t used, at = (size_t)s->o->rows_at;
    for (uint64_t row = 0; row < s->partitions; row++) {
        if (at + ROW_HEAD + 1 > size) die("an answer with fewer partitions than were asked for");
        uint32_t partition = get32(s->answer + at);
        int error = (int16_t)(s->answer[at + 4] << 8 | s->answer[at + 5]);
        if (error || partition >= s->partitions) die("partition %u was answered with error %d", partition, error);
        at += ROW_HEAD;
        uint64_t length = read_uvarint(s->answer + at, &used);
        at += used;
        size_t end = at + (length ? length - 1 : 0);
        if (end > size) die("records longer than the answer");
        take_records(s, partition, at, end, now);
        at = end + 1; /* no tagged fields */
    }
    if (s->received - before > s->max_batch) s->max_batch = s->received - before;
}

static void receive_fetch(state *s) {
    ssize_t n = recv(s->consumer, s->answer + s->got, ANSWER_MAX - s->got, 0);
    if (n <= 0) {
        if (n < 0 && errno == EAGAIN) return;
        die("the broker closed the consumer's connection");
    }
    s->got += (size_t)n;
    if (s->got < 4 || s->got < get32(s->answer) + 4u) return;
    take_answer(s, s->got);
    s->got = 0;
    if (s->received < s->planned) send_whole(s->consumer, &s->fetch);
}

static void send_due(state *s, int timer) {
    uint64_t due;
    if (read(timer, &due, sizeof due) != sizeof due) return;
    while (due-- && s->sent < s->planned) {
        s->sent_at[s->sent] = now_ns();
        const frame *produce = &s->produce[s->sent % s->partitions];
        put32(produce->bytes + 8, (uint32_t)s->sent++);
        send_whole(s->producer, produce);
    }
}

static void drop_answers(state *s) {
    if (recv(s->producer, NULL, 1 << 20, MSG_TRUNC) == 0) die("the broker closed the producer's connection");
}

static void watch(int epoll, int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

/* Where processors are few, a client that has to wait for one would measure that: it asks the scheduler to be let in at
 * once (Linux 6.12; older kernels do nothing).  No right is needed, and both brokers get the same client. */
static void ask_for_short_slices(void) {
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attributes = {.size = sizeof attributes, .runtime = 100000};
    syscall(SYS_sched_setattr, 0, &attributes, 0);
}

int run_end_to_end(const options *o) {
    int count;
    ask_for_short_slices();
    frame *frames = read_frames(o->frames_path, &count);
    if (count < 2 || o->offset_at < 0 || o->rows_at < 0) die("needs produce frames and a fetch frame, and their places");
    state *s = calloc(1, sizeof *s);
    s->o = o, s->produce = frames, s->partitions = (uint64_t)count - 1, s->fetch = frames[count - 1];
    s->starts = calloc(s->partitions, sizeof *s->starts), s->ends = calloc(s->partitions, sizeof *s->ends);
    for (uint64_t i = 0; i < s->partitions; i++)
        s->starts[i] = s->ends[i] = get64(s->fetch.bytes + o->offset_at + (long)i * o->row_bytes);
    s->planned = (uint64_t)(o->rate * (o->warm + o->seconds));
    s->measure_from = (uint64_t)(o->rate * o->warm);
    s->sent_at = calloc(s->planned, sizeof *s->sent_at);
    s->answer = malloc(ANSWER_MAX);
    s->producer = connect_now(o), s->consumer = connect_now(o);
    uint64_t gap = (uint64_t)(1e9 / o->rate);
    struct itimerspec every = {{(time_t)(gap / 1000000000u), (long)(gap % 1000000000u)}, {0, 1000000}};
    int epoll = epoll_create1(EPOLL_CLOEXEC), timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    watch(epoll, s->producer), watch(epoll, s->consumer), watch(epoll, timer);
    send_whole(s->consumer, &s->fetch);
    timerfd_settime(timer, 0, &every, NULL);
    double cpu = 0;
    int measuring = 0;
    uint64_t begin = now_ns(), last_progress = begin;
    while (s->received < s->planned) {
        struct epoll_event events[8];
        int ready = epoll_wait(epoll, events, 8, 1000);
        uint64_t before = s->received;
        for (int i = 0; i < ready; i++) {
            if (events[i].data.fd == timer) send_due(s, timer);
            else if (events[i].data.fd == s->consumer) receive_fetch(s);
            else drop_answers(s);
        }
        if (s->received > before) last_progress = now_ns();
        else if (now_ns() - last_progress > 10000000000u) die("%llu of %llu records arrived, then none for 10 s",
                                                              (unsigned long long)s->received, (unsigned long long)s->planned);
        if (!measuring && s->received >= s->measure_from) measuring = 1, cpu = cpu_seconds_of(o->pid), begin = now_ns();
    }
    double seconds = (double)(now_ns() - begin) / 1e9;
    printf("{\"requests\": %llu, \"seconds\": %.6f, \"bytes_out\": 0, \"bytes_in\": 0, \"errors\": 0, \"p50_us\": %.1f, "
           "\"p90_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, \"max_us\": %.1f, \"broker_cpu_s\": %.2f, "
           "\"client_cpu_s\": %.3f, \"largest_answer_records\": %llu}\n",
           (unsigned long long)s->latency.count, seconds, (double)histogram_quantile(&s->latency, 0.5) / 1e3,
           (double)histogram_quantile(&s->latency, 0.9) / 1e3, (double)histogram_quantile(&s->latency, 0.99) / 1e3,
           (double)histogram_quantile(&s->latency, 0.999) / 1e3, (double)s->latency.max / 1e3,
           cpu_seconds_of(o->pid) - cpu, own_cpu_seconds(), (unsigned long long)s->max_batch);
    return 0;
}
