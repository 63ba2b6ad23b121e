/* softmax_teams.h — softmax (logarithm = 0) and log-softmax along columns that teams share, where clef__has_team_columns. */
#ifndef CLEF_SOFTMAX_TEAMS_H
#define CLEF_SOFTMAX_TEAMS_H
#include "kernels/lanes.h"

/* x, y, g and dx lie dense as axes say. */
void clef__launch_team_softmax(const clef__lowering *lw, clef__operand x, clef__operand y, clef__axes axes, int logarithm);
void clef__launch_team_slope(const clef__lowering *lw, clef__operand y, clef__operand g, clef__operand dx, clef__axes axes,
                             int logarithm);
#endif
