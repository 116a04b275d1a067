/* Closed loop over TLS: a thread for each connection sends a request and waits for the whole answer.
 *
 *   tls PORT CONNECTIONS SECONDS FILE [CIPHER]     FILE holds one request with its length prefix
 *   tls PORT CONNECTIONS SECONDS handshakes        full handshakes, one after the other
 *
 * Prints requests (or handshakes), the bytes of answers, and the seconds.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static SSL_CTX *context;
static int port;
static char *request;
static long request_bytes;
static volatile int running = 1;
static pthread_barrier_t ready;

typedef struct {
    long requests, bytes;
} tally;

static void die(const char *why) {
    fprintf(stderr, "%s\n", why);
    exit(1);
}

static SSL *dial(int *fd) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
    int one = 1;
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    *fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(*fd, (struct sockaddr *)&address, sizeof address)) die("can't connect");
    setsockopt(*fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    SSL *ssl = SSL_new(context);
    SSL_set_fd(ssl, *fd);
    if (SSL_connect(ssl) != 1) die("the handshake failed");
    return ssl;
}

static void read_all(SSL *ssl, char *room, long size) {
    for (long got = 0; got < size;) {
        int n = SSL_read(ssl, room + (room ? got : 0), (int)(size - got));
        if (n <= 0) die("the broker closed a connection");
        got += n;
    }
}

static void *talk(void *argument) {
    tally *t = argument;
    int fd;
    SSL *ssl = dial(&fd);
    char *room = malloc(16 << 20);
    pthread_barrier_wait(&ready);
    while (running) {
        unsigned char head[4];
        if (SSL_write(ssl, request, (int)request_bytes) != request_bytes) die("a request was not taken");
        read_all(ssl, (char *)head, 4);
        long size = (long)head[0] << 24 | head[1] << 16 | head[2] << 8 | head[3];
        if (size > 16 << 20) die("an answer is too large");
        read_all(ssl, room, size);
        t->requests++, t->bytes += size;
    }
    return NULL;
}

static void *shake(void *argument) {
    tally *t = argument;
    pthread_barrier_wait(&ready);
    while (running) {
        int fd;
        SSL *ssl = dial(&fd);
        SSL_free(ssl);
        close(fd);
        t->requests++;
    }
    return NULL;
}

int main(int count, char **words) {
    if (count < 5) die("tls PORT CONNECTIONS SECONDS FILE [CIPHER]");
    port = atoi(words[1]);
    int connections = atoi(words[2]);
    double seconds = atof(words[3]);
    int shakes = !strcmp(words[4], "handshakes");
    context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set1_groups_list(context, "X25519:P-256");
    if (count > 5 && SSL_CTX_set_ciphersuites(context, words[5]) != 1) die("no such cipher");
    if (!shakes) {
        FILE *file = fopen(words[4], "rb");
        if (!file) die("no such file");
        fseek(file, 0, SEEK_END);
        request_bytes = ftell(file);
        rewind(file);
        request = malloc((size_t)request_bytes);
        if (fread(request, 1, (size_t)request_bytes, file) != (size_t)request_bytes) die("can't read the request");
    }
    tally *tallies = calloc((size_t)connections, sizeof *tallies);
    pthread_t thread;
    pthread_barrier_init(&ready, NULL, (unsigned)connections + 1);
    for (int i = 0; i < connections; i++) pthread_create(&thread, NULL, shakes ? shake : talk, &tallies[i]);
    pthread_barrier_wait(&ready);
    struct timespec begin, end;
    usleep(500000);
    long requests = 0, bytes = 0;
    for (int i = 0; i < connections; i++) requests -= tallies[i].requests, bytes -= tallies[i].bytes;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    printf("begin\n"), fflush(stdout);
    usleep((useconds_t)(seconds * 1e6));
    for (int i = 0; i < connections; i++) requests += tallies[i].requests, bytes += tallies[i].bytes;
    clock_gettime(CLOCK_MONOTONIC, &end);
    printf("%ld %ld %.6f\n", requests, bytes,
           (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9);
    fflush(stdout);
    _exit(0);
}
