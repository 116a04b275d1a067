/* What a program that callgrind runs says to it; without effect, and at no cost, where none does. */

#include <valgrind/callgrind.h>

int kb_is_counted(void) { return RUNNING_ON_VALGRIND != 0; }

/* Instrumentation is slow and begins only with the first part that is counted. */
void kb_instrument(void) {
    CALLGRIND_START_INSTRUMENTATION;
}

void kb_zero(void) { CALLGRIND_ZERO_STATS; }

void kb_toggle(void) { CALLGRIND_TOGGLE_COLLECT; }

void kb_dump(const char *name) { CALLGRIND_DUMP_STATS_AT(name); }
