/* Makes fdatasync wait while the file that KBROKER_TEST_SLOW names exists: a disk that takes its time. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int fdatasync(int fd) {
    static int (*real)(int);
    const struct timespec pause = {0, 5000000};
    const char *slow = getenv("KBROKER_TEST_SLOW");
    if (!real)
        real = (int (*)(int)) dlsym(RTLD_NEXT, "fdatasync");
    while (slow && access(slow, F_OK) == 0)
        nanosleep(&pause, NULL);
    return real(fd);
}
