/* A load generator of prebuilt Kafka frames that costs little CPU itself.
 *
 *     loadgen closed|e2e|storm --host H --port P --frames FILE [--name value ...]
 *
 * FILE holds requests one after the other with their length prefixes; connection i sends frame i modulo their number,
 * or with --rotate 1 frame i, i + connections, i + 2 * connections, ...
 * The generator patches correlation ids, and fetch offsets where told their place.  It prints one JSON object. */
#include "wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    options o = {.host = "127.0.0.1", .congestion = "", .port = 9092, .connections = 1, .depth = 1, .warm = 1,
                 .seconds = 3, .rate = 1000, .check_at = -1, .base_at = -1, .offset_at = -1, .rows_at = -1,
                 .batch_bytes = 1, .batch_records = 1};
    if (argc < 2) die("usage: loadgen closed|e2e|storm --host H --port P --frames FILE [--name value ...]");
    for (int i = 2; i + 1 < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        if (!strcmp(name, "--host")) o.host = value;
        else if (!strcmp(name, "--port")) o.port = atoi(value);
        else if (!strcmp(name, "--frames")) o.frames_path = value;
        else if (!strcmp(name, "--congestion")) o.congestion = value;
        else if (!strcmp(name, "--connections")) o.connections = atoi(value);
        else if (!strcmp(name, "--depth")) o.depth = atoi(value);
        else if (!strcmp(name, "--rotate")) o.rotate = atoi(value);
        else if (!strcmp(name, "--pid")) o.pid = atoi(value);
        else if (!strcmp(name, "--warm")) o.warm = atof(value);
        else if (!strcmp(name, "--seconds")) o.seconds = atof(value);
        else if (!strcmp(name, "--rate")) o.rate = atof(value);
        else if (!strcmp(name, "--max-requests")) o.max_requests = atol(value);
        else if (!strcmp(name, "--check-at")) o.check_at = atol(value);
        else if (!strcmp(name, "--base-at")) o.base_at = atol(value);
        else if (!strcmp(name, "--offset-at")) o.offset_at = atol(value);
        else if (!strcmp(name, "--batch-bytes")) o.batch_bytes = atol(value);
        else if (!strcmp(name, "--batch-records")) o.batch_records = atol(value);
        else if (!strcmp(name, "--end-offset")) o.end_offset = atol(value);
        else if (!strcmp(name, "--rows-at")) o.rows_at = atol(value);
        else if (!strcmp(name, "--row-bytes")) o.row_bytes = atol(value);
        else die("unknown option %s", name);
    }
    if (!o.frames_path) die("--frames is missing");
    need_files(o.connections);
    if (!strcmp(argv[1], "closed")) return run_closed(&o);
    if (!strcmp(argv[1], "e2e")) return run_end_to_end(&o);
    if (!strcmp(argv[1], "storm")) return run_storm(&o);
    die("unknown mode %s", argv[1]);
}
