/* librdkafka under load, as a C program uses it: what its users get, without the cost of a language around it.
 *
 *     librdkafka_client produce|transact|consume --library FILE --bootstrap H:P --topic T [--name value ...] [--set key=value ...]
 *
 * produce: messages of --size bytes without a wait between them for --seconds after --warm (a quarter
 *          of --messages at most); counted when acknowledged.
 * transact: transactions of --messages messages, one after the other; the latency is from the begin of one to the answer
 *          to its commit.
 * consume: --consumers members of group --group read --messages messages from the beginning; the rate runs from the
 * first message to the last.  Prints one JSON object. */
#define _GNU_SOURCE
#include "histogram.h"
#include "librdkafka.h"
#include "wire.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_SETTINGS 32
#define BATCH 2000

typedef struct {
    const char *library, *bootstrap, *topic, *group;
    const char *settings[MAX_SETTINGS];
    int settings_count, size, consumers, pid;
    double warm, seconds;
    long messages;
} arguments;

static librdkafka kafka;
static uint64_t delivered, refused; /* by the one thread that polls */
static _Atomic uint64_t consumed, consumed_bytes, first_at, last_at;
static _Atomic int members_with_data;

static librdkafka load_librdkafka(const char *path) {
    librdkafka k;
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!library) die("%s", dlerror());
    struct {
        const char *name;
        void *slot;
    } wanted[] = {{"rd_kafka_conf_new", &k.conf_new}, {"rd_kafka_conf_set", &k.conf_set},
                  {"rd_kafka_conf_set_dr_msg_cb", &k.conf_set_dr_msg_cb}, {"rd_kafka_new", &k.new_client},
                  {"rd_kafka_topic_new", &k.topic_new}, {"rd_kafka_produce", &k.produce}, {"rd_kafka_poll", &k.poll},
                  {"rd_kafka_flush", &k.flush}, {"rd_kafka_fatal_error", &k.fatal_error},
                  {"rd_kafka_topic_partition_list_new", &k.list_new},
                  {"rd_kafka_topic_partition_list_add", &k.list_add}, {"rd_kafka_subscribe", &k.subscribe},
                  {"rd_kafka_poll_set_consumer", &k.poll_set_consumer},
                  {"rd_kafka_queue_get_consumer", &k.queue_get_consumer},
                  {"rd_kafka_consume_batch_queue", &k.consume_batch_queue},
                  {"rd_kafka_message_destroy", &k.message_destroy}, {"rd_kafka_consumer_close", &k.consumer_close},
                  {"rd_kafka_init_transactions", &k.init_transactions},
                  {"rd_kafka_begin_transaction", &k.begin_transaction},
                  {"rd_kafka_commit_transaction", &k.commit_transaction},
                  {"rd_kafka_error_string", &k.error_string},
                  {"rd_kafka_err2str", &k.err2str}, {"rd_kafka_version_str", &k.version_str}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        void *found = dlsym(library, wanted[i].name);
        if (!found) die("%s has no %s", path, wanted[i].name);
        memcpy(wanted[i].slot, &found, sizeof found);
    }
    return k;
}

static void count_delivery(client *from, const message *m, void *opaque) {
    (void)from, (void)opaque;
    if (m->err) {
        if (!refused++) fprintf(stderr, "delivery failed: %s\n", kafka.err2str(m->err));
    } else {
        delivered++;
    }
}

static client *open_client(const arguments *a, int type) {
    char error[512];
    conf *settings = kafka.conf_new();
    if (kafka.conf_set(settings, "bootstrap.servers", a->bootstrap, error, sizeof error)) die("%s", error);
    if (type == CONSUMER && kafka.conf_set(settings, "group.id", a->group, error, sizeof error)) die("%s", error);
    for (int i = 0; i < a->settings_count; i++) {
        char *key = strdup(a->settings[i]), *value = strchr(key, '=');
        if (!value) die("--set %s: no =", a->settings[i]);
        *value++ = 0;
        if (kafka.conf_set(settings, key, value, error, sizeof error)) die("%s", error);
        free(key);
    }
    if (type == PRODUCER) kafka.conf_set_dr_msg_cb(settings, count_delivery);
    client *made = kafka.new_client(type, settings, error, sizeof error);
    if (!made) die("%s", error);
    return made;
}

/* Words that differ from message to message, about as compressible as log lines are. */
static void fill_payloads(char *payloads, int count, int size) {
    uint64_t seed = 88172645463325252u;
    for (long i = 0; i < (long)count * size; i++) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        payloads[i] = i % 8 < 3 ? ' ' + (char)(i % 8) : (char)('a' + seed % 16);
    }
}

static int produce(const arguments *a) {
    enum { PAYLOADS = 64 };
    client *producer = open_client(a, PRODUCER);
    topic *to = kafka.topic_new(producer, a->topic, NULL);
    char *payloads = malloc((size_t)PAYLOADS * (size_t)a->size);
    uint64_t begin = now_ns(), border = begin + (uint64_t)(a->warm * 1e9), stop = UINT64_MAX, before = 0, now = begin, n = 0;
    double cpu = 0, own = 0;
    int measuring = 0;
    if (!to) die("no topic");
    fill_payloads(payloads, PAYLOADS, a->size);
    while (now < stop && !refused && (!measuring || !a->messages || delivered - before < (uint64_t)a->messages)) {
        for (int i = 0; i < 200; i++, n++) {
            char *payload = payloads + n % PAYLOADS * (uint64_t)a->size;
            while (kafka.produce(to, ANY_PARTITION, COPY_PAYLOAD, payload, (size_t)a->size, NULL, 0, NULL)) {
                kafka.poll(producer, 10); /* the queue is full */
                if (now_ns() > stop) break;
                if (now_ns() - begin > 120000000000u) die("no progress for too long");
            }
        }
        kafka.poll(producer, 0);
        now = now_ns();
        if (!measuring && (now >= border || (a->messages && delivered >= (uint64_t)a->messages / WARM_PART))) {
            measuring = 1, before = delivered, begin = now, stop = now + (uint64_t)(a->seconds * 1e9);
            cpu = cpu_seconds_of(a->pid), own = own_cpu_seconds();
        }
    }
    uint64_t done = delivered - before, wrong = refused;
    double seconds = (double)(now - begin) / 1e9;
    cpu = cpu_seconds_of(a->pid) - cpu, own = own_cpu_seconds() - own;
    char error[512] = "";
    if (kafka.fatal_error(producer, error, sizeof error)) fprintf(stderr, "fatal: %s\n", error);
    kafka.flush(producer, 30000);
    printf("{\"records\": %llu, \"record_bytes\": %d, \"seconds\": %.6f, \"errors\": %llu, \"broker_cpu_s\": %.2f, "
           "\"client_cpu_s\": %.3f, \"client_version\": \"%s\"}\n",
           (unsigned long long)done, a->size, seconds, (unsigned long long)wrong, cpu, own, kafka.version_str());
    return 0;
}

static void must(const char *what, const void *error) {
    if (error) die("%s: %s", what, kafka.error_string(error));
}

static int transact(const arguments *a) {
    static histogram latencies;
    client *producer = open_client(a, PRODUCER);
    topic *to = kafka.topic_new(producer, a->topic, NULL);
    char *payload = malloc((size_t)a->size);
    uint64_t begin, stop = UINT64_MAX, count = 0;
    double cpu = 0, own = 0;
    if (!to) die("no topic");
    fill_payloads(payload, 1, a->size);
    must("init_transactions", kafka.init_transactions(producer, 60000));
    begin = now_ns();
    for (uint64_t now = begin; now < stop && !refused; count++) {
        uint64_t from = now;
        must("begin_transaction", kafka.begin_transaction(producer));
        for (long i = 0; i < a->messages; i++)
            if (kafka.produce(to, ANY_PARTITION, COPY_PAYLOAD, payload, (size_t)a->size, NULL, 0, NULL)) die("produce");
        must("commit_transaction", kafka.commit_transaction(producer, 60000));
        now = now_ns();
        histogram_add(&latencies, now - from);
        if (stop == UINT64_MAX && now >= begin + (uint64_t)(a->warm * 1e9)) {
            histogram_reset(&latencies);
            count = UINT64_MAX; /* the loop makes 0 of it */
            begin = now, stop = now + (uint64_t)(a->seconds * 1e9);
            cpu = cpu_seconds_of(a->pid), own = own_cpu_seconds();
        }
    }
    double seconds = (double)(now_ns() - begin) / 1e9;
    cpu = cpu_seconds_of(a->pid) - cpu, own = own_cpu_seconds() - own;
    printf("{\"requests\": %llu, \"records\": %llu, \"seconds\": %.6f, \"errors\": %llu, \"p50_us\": %.1f, "
           "\"p99_us\": %.1f, \"p999_us\": %.1f, \"broker_cpu_s\": %.2f, \"client_cpu_s\": %.3f, "
           "\"client_version\": \"%s\"}\n",
           (unsigned long long)count, (unsigned long long)count * (unsigned long long)a->messages, seconds,
           (unsigned long long)refused, (double)histogram_quantile(&latencies, 0.5) / 1e3,
           (double)histogram_quantile(&latencies, 0.99) / 1e3, (double)histogram_quantile(&latencies, 0.999) / 1e3, cpu, own,
           kafka.version_str());
    fflush(stdout);
    _exit(0); /* a producer that is idle need not be closed */
}

static void *member(void *argument) {
    const arguments *a = argument;
    client *consumer = open_client(a, CONSUMER);
    partition_list *topics = kafka.list_new(1);
    static _Thread_local message *messages[BATCH];
    int seen = 0;
    kafka.list_add(topics, a->topic, ANY_PARTITION);
    kafka.poll_set_consumer(consumer);
    if (kafka.subscribe(consumer, topics)) die("can't subscribe");
    queue *from = kafka.queue_get_consumer(consumer);
    while (consumed < (uint64_t)a->messages) {
        ssize_t count = kafka.consume_batch_queue(from, 100, messages, BATCH);
        uint64_t good = 0, bytes = 0, now = now_ns();
        for (ssize_t i = 0; i < count; i++) {
            if (!messages[i]->err) good++, bytes += messages[i]->len;
            kafka.message_destroy(messages[i]);
        }
        if (!good) continue;
        uint64_t none = 0;
        atomic_compare_exchange_strong(&first_at, &none, now);
        if (!seen++) members_with_data++;
        consumed_bytes += bytes;
        consumed += good;
        last_at = now;
    }
    kafka.consumer_close(consumer);
    return NULL;
}

static int consume(const arguments *a) {
    uint64_t begin = now_ns(), last = 0, progress = begin;
    double cpu = cpu_seconds_of(a->pid), own = own_cpu_seconds();
    for (int i = 0; i < a->consumers; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, member, (void *)a)) die("no thread");
        pthread_detach(thread);
    }
    while (consumed < (uint64_t)a->messages) {
        struct timespec nap = {0, 2000000};
        nanosleep(&nap, NULL);
        if (consumed != last) last = consumed, progress = now_ns();
        else if (now_ns() - progress > 60000000000u) die("%llu messages arrived, then none for a minute", (unsigned long long)last);
    }
    cpu = cpu_seconds_of(a->pid) - cpu, own = own_cpu_seconds() - own;
    uint64_t done = consumed;
    printf("{\"records\": %llu, \"bytes\": %llu, \"seconds\": %.6f, \"first_record_s\": %.3f, \"errors\": 0, "
           "\"members_with_data\": %d, \"broker_cpu_s\": %.2f, \"client_cpu_s\": %.3f, \"client_version\": \"%s\"}\n",
           (unsigned long long)done, (unsigned long long)consumed_bytes, (double)(last_at - first_at) / 1e9,
           (double)(first_at - begin) / 1e9, members_with_data, cpu, own, kafka.version_str());
    fflush(stdout);
    _exit(0); /* members that still close their consumers are not waited for */
}

int main(int argc, char **argv) {
    arguments a = {.bootstrap = "127.0.0.1:9092", .group = "bench", .size = 100, .consumers = 1, .warm = 1, .seconds = 3};
    if (argc < 2) die("usage: librdkafka_client produce|transact|consume --library FILE --bootstrap H:P --topic T ...");
    for (int i = 2; i + 1 < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        if (!strcmp(name, "--library")) a.library = value;
        else if (!strcmp(name, "--bootstrap")) a.bootstrap = value;
        else if (!strcmp(name, "--topic")) a.topic = value;
        else if (!strcmp(name, "--group")) a.group = value;
        else if (!strcmp(name, "--size")) a.size = atoi(value);
        else if (!strcmp(name, "--consumers")) a.consumers = atoi(value);
        else if (!strcmp(name, "--pid")) a.pid = atoi(value);
        else if (!strcmp(name, "--warm")) a.warm = atof(value);
        else if (!strcmp(name, "--seconds")) a.seconds = atof(value);
        else if (!strcmp(name, "--messages")) a.messages = atol(value);
        else if (!strcmp(name, "--set") && a.settings_count < MAX_SETTINGS) a.settings[a.settings_count++] = value;
        else die("unknown option %s", name);
    }
    if (!a.library || !a.topic) die("--library and --topic are needed");
    kafka = load_librdkafka(a.library);
    if (!strcmp(argv[1], "produce")) return produce(&a);
    if (!strcmp(argv[1], "transact")) return transact(&a);
    if (!strcmp(argv[1], "consume")) return consume(&a);
    die("unknown mode %s", argv[1]);
}
