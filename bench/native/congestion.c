/* Preloaded into a broker that can't set its sockets' congestion control itself: listen() sets the one that the
 * environment names, and accepted sockets inherit it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

int listen(int fd, int backlog) {
    static int (*next)(int, int);
    const char *name = getenv("BENCH_TCP_CONGESTION");
    if (!next) next = (int (*)(int, int))dlsym(RTLD_NEXT, "listen");
    if (name && *name) setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name));
    return next(fd, backlog);
}
