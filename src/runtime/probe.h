/* probe.h — what was found out about a driver by a process of its own (clef-probe, probe_main.c).

   Some drivers hang, crash or give wrong numbers where events cross queues or where work waits for user events.  So Clef relies on
   neither before a child process has tried it, which is stopped after some seconds.  Verdicts are remembered in the process and cached
   on disk (the context's cache), by all that the answer may depend on. */
#ifndef CLEF_PROBE_H
#define CLEF_PROBE_H
#include "runtime/runtime_internal.h"

/* May a and b lie in one cl_context whose queues wait for each other's events?  Devices of the list or parts of them, as
   clef__device_divide gives them; a and b the same: two queues of one device.  The order does not matter, and pairs of equal devices
   share one verdict.  ask: start the child if nobody knows; else CLEF_VERDICT_UNKNOWN.  Only CLEF_VERDICT_YES allows anything.  (On user events: clef_device_user_events,
   by the index of the whole device.) */
clef_verdict clef__probe_events(clef_context *ctx, const clef__found *a, const clef__found *b, bool ask);
#endif
