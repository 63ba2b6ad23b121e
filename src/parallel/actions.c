/* actions.c — the order in which a stage goes through its micro-batches.

   1F1B: stage s of p first takes p - s - 1 micro-batches forward, so that the last stage's first gradient finds it busy; then one forward
   and one backward in turn; then the backwards that are left.  GPipe: all forward, all backward.  Both go backward in the order of
   the micro-batches, so the sums of gradients have the same bits. */
#include "parallel/parallel.h"

void clef__pipeline_actions(clef_pipeline_schedule schedule, int stages, int stage, int micro_batches, clef__action *action) {
    int ahead = schedule == CLEF_PIPELINE_GPIPE ? micro_batches : stages - stage - 1;
    int n = 0, forward = 0, backward = 0;
    while (backward < micro_batches) {
        bool forth = forward < micro_batches && forward <= backward + ahead;
        action[n++] = (clef__action){forth ? forward++ : backward++, !forth};
    }
}
