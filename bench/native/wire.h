/* Prebuilt frames, sockets, clocks and the broker's CPU time: what every mode of the load generator needs. */
#ifndef KB_BENCH_WIRE_H
#define KB_BENCH_WIRE_H

#include <stddef.h>
#include <stdint.h>

/* Of what may be written in all, so much at most is written while warming: one part in WARM_PART. */
enum { WARM_PART = 4 };

typedef struct {
    uint8_t *bytes; /* length prefix included */
    size_t size;
} frame;

typedef struct {
    const char *host, *congestion, *frames_path;
    int port, connections, depth, pid, rotate;
    double warm, seconds, rate;
    long max_requests;
    long check_at;                                        /* place of an error code in the answer, or -1 */
    long base_at;                                         /* place of an offset there, or of the records; or -1 */
    long offset_at, batch_bytes, batch_records, end_offset; /* sequential fetch; offset_at -1: none */
    long rows_at, row_bytes; /* place of the first partition in a fetch answer; size of one in a fetch request */
} options;

_Noreturn void die(const char *format, ...);
uint64_t now_ns(void);
double cpu_seconds_of(int pid); /* user + system of the process with all its threads; 0 when pid is 0 */
double own_cpu_seconds(void);
void need_files(int count); /* raises the limit of open files; ends the program when that is not enough */
frame *read_frames(const char *path, int *count);
int start_connect(const options *o); /* non-blocking */
int connect_now(const options *o);   /* connected, then non-blocking */
uint32_t get32(const uint8_t *at);
uint64_t get64(const uint8_t *at);
void put32(uint8_t *at, uint32_t value);
void put64(uint8_t *at, uint64_t value);

int run_closed(const options *o);
int run_end_to_end(const options *o);
int run_storm(const options *o);
#endif
