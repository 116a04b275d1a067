/* The part of librdkafka's interface that the benchmark uses, written down here so that the library which comes with
 * confluent-kafka can be loaded without its header files.  All of it has been stable since librdkafka 1.0. */
#ifndef KB_BENCH_LIBRDKAFKA_H
#define KB_BENCH_LIBRDKAFKA_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { PRODUCER = 0, CONSUMER = 1 };
enum { COPY_PAYLOAD = 2, BLOCK_WHEN_FULL = 4 };
#define ANY_PARTITION ((int32_t)-1)

typedef struct client client;
typedef struct conf conf;
typedef struct topic topic;
typedef struct queue queue;
typedef struct partition_list partition_list;

typedef struct {
    int err;
    topic *topic;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *opaque;
} message;

typedef struct {
    conf *(*conf_new)(void);
    int (*conf_set)(conf *, const char *, const char *, char *, size_t);
    void (*conf_set_dr_msg_cb)(conf *, void (*)(client *, const message *, void *));
    client *(*new_client)(int, conf *, char *, size_t);
    topic *(*topic_new)(client *, const char *, void *);
    int (*produce)(topic *, int32_t, int, void *, size_t, const void *, size_t, void *);
    int (*poll)(client *, int);
    int (*flush)(client *, int);
    int (*fatal_error)(client *, char *, size_t);
    partition_list *(*list_new)(int);
    void *(*list_add)(partition_list *, const char *, int32_t);
    int (*subscribe)(client *, const partition_list *);
    int (*poll_set_consumer)(client *);
    queue *(*queue_get_consumer)(client *);
    ssize_t (*consume_batch_queue)(queue *, int, message **, size_t);
    void (*message_destroy)(message *);
    int (*consumer_close)(client *);
    void *(*init_transactions)(client *, int);
    void *(*begin_transaction)(client *);
    void *(*commit_transaction)(client *, int);
    const char *(*error_string)(const void *);
    const char *(*err2str)(int);
    const char *(*version_str)(void);
} librdkafka;
#endif
