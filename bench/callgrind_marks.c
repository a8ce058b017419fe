/* Tells valgrind's callgrind when to count; does nothing in a program that runs without it. */
#include <valgrind/callgrind.h>

void begin_counting(void) { CALLGRIND_START_INSTRUMENTATION; }
void end_counting(void) { CALLGRIND_STOP_INSTRUMENTATION; }
