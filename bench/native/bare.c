/* The least that a server can do for a request: the system calls, and nothing that makes it a broker.
 *
 *     bare --answer FILE [--data FILE ...] [--read BYTES] [--spread N] [--spin-us N] [--congestion NAME]
 *
 * Takes whole frames and gives each the same answer, the one in FILE, with the frame's correlation id.  With --data the
 * frame is first appended to that file, or with --spread to the next of N files, FILE, FILE.1 and so on (one `pwrite`; from
 * 4 MB on, as in kbroker, blocks are reserved 16 MB ahead).  With --read, too, the last BYTES of the answer come from a
 * data file instead, each connection reading one of them from front to back: by `pread` and one `send` up to 48 KB, by
 * `sendfile` beyond.  Nothing is decoded, checked, indexed or remembered.  One thread; answers of one turn leave
 * together; while requests come closely it looks for the next for N us before it sleeps.  Prints the port
 * that it listens on, on loopback, and ends when its standard input does. */
#define _GNU_SOURCE
#include "wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define FRAME_ROOM (2u << 20)
#define READ_ROOM (64u << 10)
#define AHEAD (16l << 20)
#define GROWN (4l << 20)
#define SENDFILE_FROM (48u << 10)
#define MOST 1024
#define MOST_FILES 64

typedef struct {
    int fd, file, waiting; /* waiting: has a part of an answer that the socket did not take */
    uint8_t *room;
    size_t filled, left;
    uint32_t id;
    off_t from, next;
} peer;

typedef struct {
    int fd;
    off_t end, reserved;
} grown;

typedef struct {
    frame answer;
    uint8_t *whole; /* a small answer with what was read behind its head */
    size_t read_bytes, head_bytes;
    int files[MOST_FILES], count, epoll, accepted;
    off_t sizes[MOST_FILES];
    grown *written;
    int spread, turn;
} server;

static void append(server *s, const uint8_t *bytes, size_t size) {
    grown *to = &s->written[s->turn];
    if (++s->turn == s->spread) s->turn = 0;
    if (to->end + (off_t)size > to->reserved) {
        if (fallocate(to->fd, FALLOC_FL_KEEP_SIZE, to->reserved, AHEAD)) die("fallocate: %s", strerror(errno));
        to->reserved += AHEAD;
    }
    if (pwrite(to->fd, bytes, size, to->end) != (ssize_t)size) die("pwrite: %s", strerror(errno));
    to->end += (off_t)size;
}

static void want_write(server *s, peer *p, int wanted) {
    if (p->waiting == wanted) return;
    struct epoll_event event = {.events = wanted ? EPOLLOUT : EPOLLIN, .data.ptr = p};
    epoll_ctl(s->epoll, EPOLL_CTL_MOD, p->fd, &event);
    p->waiting = wanted;
}

/* Sends what is left of an answer: `left` counts from its end. */
static void send_on(server *s, peer *p) {
    size_t total = s->answer.size;
    while (p->left) {
        size_t done = total - p->left;
        ssize_t n;
        if (s->read_bytes && total > SENDFILE_FROM) {
            if (done < s->head_bytes) {
                put32(s->answer.bytes + 4, p->id);
                n = send(p->fd, s->answer.bytes + done, s->head_bytes - done, MSG_NOSIGNAL | MSG_MORE);
            } else {
                off_t at = p->from + (off_t)(done - s->head_bytes);
                n = sendfile(p->fd, s->files[p->file], &at, p->left);
            }
        } else {
            put32(s->whole + 4, p->id);
            if (s->read_bytes && pread(s->files[p->file], s->whole + s->head_bytes, s->read_bytes, p->from) < 0)
                die("pread: %s", strerror(errno));
            n = send(p->fd, s->whole + done, p->left, MSG_NOSIGNAL);
        }
        if (n < 0 && errno != EAGAIN) {
            p->left = 0;
            return;
        }
        if (n < 0) {
            want_write(s, p, 1);
            return;
        }
        p->left -= (size_t)n;
    }
    want_write(s, p, 0);
}

/* Whether a whole frame came, which is then served but for its answer. */
static int receive(server *s, peer *p) {
    /* What a small request needs at most; the rest of a large frame as it is known to come. */
    size_t want = p->filled < 4 ? READ_ROOM : get32(p->room) + 4u - p->filled;
    if (want > FRAME_ROOM - p->filled) die("a frame of more than %u bytes", FRAME_ROOM);
    ssize_t n = read(p->fd, p->room + p->filled, want);
    if (n < 0 && errno == EAGAIN) return 0;
    if (n <= 0) {
        epoll_ctl(s->epoll, EPOLL_CTL_DEL, p->fd, NULL);
        close(p->fd);
        free(p->room);
        free(p);
        return 0;
    }
    p->filled += (size_t)n;
    if (p->filled < 12 || p->filled < get32(p->room) + 4u) return 0;
    p->id = get32(p->room + 8);
    if (s->written) append(s, p->room, p->filled);
    if (s->read_bytes) {
        p->from = p->next;
        p->next += (off_t)s->read_bytes;
        if (p->next + (off_t)s->read_bytes > s->sizes[p->file]) p->next = 0;
    }
    p->filled = 0;
    p->left = s->answer.size;
    return 1;
}

static void accept_one(server *s, int listener) {
    int one = 1;
    peer *p = calloc(1, sizeof *p);
    if (!p || !(p->room = malloc(FRAME_ROOM))) die("out of memory");
    p->fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (p->fd < 0) die("accept: %s", strerror(errno));
    p->file = s->count ? s->accepted++ % s->count : 0;
    setsockopt(p->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = p};
    epoll_ctl(s->epoll, EPOLL_CTL_ADD, p->fd, &event);
}

static int listen_on_loopback(const char *congestion) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*congestion && setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion, (socklen_t)strlen(congestion)))
        die("congestion control %s: %s", congestion, strerror(errno));
    if (bind(fd, (struct sockaddr *)&address, size) || listen(fd, MOST) ||
        getsockname(fd, (struct sockaddr *)&address, &size))
        die("listen: %s", strerror(errno));
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

static void open_data(server *s, const char *path) {
    struct stat found;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &found)) die("can't open %s: %s", path, strerror(errno));
    if (s->count == MOST_FILES) die("more than %d files", MOST_FILES);
    if (found.st_size < (off_t)s->read_bytes) die("%s is shorter than one answer", path);
    s->sizes[s->count] = found.st_size;
    s->files[s->count++] = fd;
}

static void open_written(server *s, const char *path) {
    char name[4096];
    s->written = calloc((size_t)s->spread, sizeof(grown));
    if (!s->written) die("out of memory");
    for (int i = 0; i < s->spread; i++) {
        if (i) snprintf(name, sizeof name, "%s.%d", path, i);
        else snprintf(name, sizeof name, "%s", path);
        struct stat found;
        grown *to = &s->written[i];
        to->fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (to->fd < 0 || fstat(to->fd, &found)) die("can't open %s: %s", name, strerror(errno));
        to->end = found.st_size;
        to->reserved = to->end > GROWN ? to->end : GROWN;
    }
}

static void take_answer(server *s, const char *path) {
    int count;
    s->answer = *read_frames(path, &count);
    if (s->read_bytes >= s->answer.size) die("--read is more than the answer");
    s->head_bytes = s->answer.size - s->read_bytes;
    s->whole = malloc(s->answer.size);
    if (!s->whole) die("out of memory");
    memcpy(s->whole, s->answer.bytes, s->answer.size);
}

static void serve(server *s, int listener, uint64_t spin_ns) {
    struct epoll_event events[MOST], first = {.events = EPOLLIN, .data.ptr = NULL}, input = {.events = EPOLLIN};
    peer *answered[MOST];
    uint64_t last = 0;
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    input.data.ptr = s;
    epoll_ctl(s->epoll, EPOLL_CTL_ADD, listener, &first);
    epoll_ctl(s->epoll, EPOLL_CTL_ADD, STDIN_FILENO, &input);
    for (;;) {
        int spinning = spin_ns && now_ns() - last < spin_ns, served = 0;
        int ready = epoll_wait(s->epoll, events, MOST, spinning ? 0 : -1);
        for (int i = 0; i < ready; i++) {
            peer *p = events[i].data.ptr;
            if ((void *)p == (void *)s) return;
            if (!p) accept_one(s, listener);
            else if (p->waiting) send_on(s, p);
            else if (receive(s, p)) answered[served++] = p;
        }
        for (int i = 0; i < served; i++) send_on(s, answered[i]);
        if (served) last = now_ns();
    }
}

int main(int argc, char **argv) {
    const char *answer = NULL, *congestion = "", *data[MOST_FILES];
    long spin_us = 0;
    int files = 0;
    server s = {.spread = 1};
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        if (!strcmp(name, "--answer")) answer = value;
        else if (!strcmp(name, "--data") && files < MOST_FILES) data[files++] = value;
        else if (!strcmp(name, "--read")) s.read_bytes = (size_t)atol(value);
        else if (!strcmp(name, "--spread")) s.spread = atoi(value);
        else if (!strcmp(name, "--spin-us")) spin_us = atol(value);
        else if (!strcmp(name, "--congestion")) congestion = value;
        else die("unknown option %s, or too many files", name);
    }
    if (!answer || (s.read_bytes && !files) || (!s.read_bytes && files > 1) || s.spread < 1)
        die("usage: bare --answer FILE [--data FILE ...] [--read BYTES] [--spread N] [--spin-us N] [--congestion NAME]");
    need_files(MOST + s.spread);
    take_answer(&s, answer);
    if (!s.read_bytes && files) open_written(&s, data[0]);
    else for (int i = 0; i < files; i++) open_data(&s, data[i]);
    serve(&s, listen_on_loopback(congestion), (uint64_t)spin_us * 1000);
    return 0;
}
