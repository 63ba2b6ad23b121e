/* checkpoint_numbers.c — the numbers of a checkpoint as text that comes back bit for bit, by one table. */
#include "checkpoint_numbers.h"
#include "optim/optimizer.h"
#include <math.h>
#include <string.h>

typedef enum part { ALWAYS, OPTIMIZER, SCHEDULE, LOADER, AVERAGED, SCALER } part;
typedef enum kind { WHOLE, COUNT, REAL } kind;                     /* int64_t, uint64_t, double */
typedef enum range { ANY, COUNTED, FINITE, SCALE, ORDERED } range; /* COUNTED: 0 to 2⁶² (it is counted on); ORDERED: not NaN */

static const struct field {
    const char *key;
    part part;
    kind kind;
    range range;
    size_t offset;
} fields[] = {
    {"epoch", ALWAYS, WHOLE, ANY, offsetof(clef__run_numbers, epoch)},
    {"metric", ALWAYS, REAL, ANY, offsetof(clef__run_numbers, metric)},
    {"random.seed", ALWAYS, COUNT, ANY, offsetof(clef__run_numbers, random.seed)},
    {"random.offset", ALWAYS, COUNT, ANY, offsetof(clef__run_numbers, random.offset)},
    {"optimizer.steps", OPTIMIZER, WHOLE, COUNTED, offsetof(clef__run_numbers, optimizer.steps)},
    {"optimizer.lr", OPTIMIZER, REAL, FINITE, offsetof(clef__run_numbers, optimizer.lr)},
    {"schedule.ticks", SCHEDULE, WHOLE, COUNTED, offsetof(clef__run_numbers, schedule.ticks)},
    {"schedule.bad", SCHEDULE, WHOLE, COUNTED, offsetof(clef__run_numbers, schedule.bad)},
    {"schedule.best", SCHEDULE, REAL, ORDERED, offsetof(clef__run_numbers, schedule.best)},
    {"schedule.lr", SCHEDULE, REAL, FINITE, offsetof(clef__run_numbers, schedule.lr)},
    {"loader.epoch", LOADER, WHOLE, COUNTED, offsetof(clef__run_numbers, loader.epoch)},
    {"loader.batch", LOADER, WHOLE, COUNTED, offsetof(clef__run_numbers, loader.batch)},
    {"loader.seed", LOADER, COUNT, ANY, offsetof(clef__run_numbers, loader.seed)},
    {"scaler.scale", SCALER, REAL, SCALE, offsetof(clef__run_numbers, scaler.scale)},
    {"scaler.good", SCALER, WHOLE, COUNTED, offsetof(clef__run_numbers, scaler.good)},
    {"averaged.updates", AVERAGED, WHOLE, COUNTED, offsetof(clef__run_numbers, updates)},
};
enum { FIELDS = sizeof fields / sizeof *fields };
_Static_assert((int)FIELDS < (int)CLEF__NUMBERS_MOST, "room for the fields, and shares");
static const char shares_key[] = "loader.shares";
static const int64_t largest_count = INT64_C(1) << 62;

bool clef__is_count(int64_t n) { return n >= 0 && n <= largest_count; }

static bool in_range(const clef__run_numbers *s, const struct field *field) {
    const char *at = (const char *)s + field->offset;
    switch (field->range) {
    case COUNTED: return clef__is_count(*(const int64_t *)at);
    case FINITE: return isfinite(*(const double *)at);
    case SCALE: return clef__is_scale(*(const double *)at);
    case ORDERED: return !isnan(*(const double *)at);
    default: return true;
    }
}

static bool has_part(const clef__run_numbers *s, part which) {
    return which == ALWAYS || (which == OPTIMIZER && s->optimizer_present) || (which == SCHEDULE && s->schedule_present) ||
           (which == LOADER && s->loader_present) || (which == AVERAGED && s->averaged_present) ||
           (which == SCALER && s->scaler_present);
}

static clef__number format_field(const clef__run_numbers *s, const struct field *field) {
    const char *at = (const char *)s + field->offset;
    if (field->kind == REAL) return clef__exact(*(const double *)at);
    if (field->kind == WHOLE) return clef__decimal(*(const int64_t *)at);
    return clef__unsigned(*(const uint64_t *)at);
}

static bool parse_field(clef__run_numbers *s, const struct field *field, const char *text) {
    char *at = (char *)s + field->offset;
    if (field->kind == REAL) return clef__parse_exact(text, (double *)at);
    if (field->kind == WHOLE) return clef__parse_decimal(text, (int64_t *)at);
    return clef__parse_unsigned(text, (uint64_t *)at);
}

/* "48:16" */
static void format_shares(const clef__saved_shares *s, char *text, size_t size) {
    size_t used = 0;
    text[0] = 0;
    for (int r = 0; r < s->n && used < size; r++)
        used += (size_t)snprintf(text + used, size - used, "%s%lld", r ? ":" : "", (long long)s->of[r]);
}

/* The file may hold anything. */
static bool parse_shares(const char *text, clef__saved_shares *s) {
    char number[24];
    for (s->n = 0; s->n < CLEF__SHARES_MOST; text++) {
        size_t length = strcspn(text, ":");
        if (length == 0 || length >= sizeof number) return false;
        memcpy(number, text, length);
        number[length] = 0;
        int64_t *share = &s->of[s->n++];
        if (!clef__parse_decimal(number, share) || *share < 0 || *share > 1000000) return false;
        text += length;
        if (!*text) return true;
    }
    return false;
}

bool clef__numbers_format(const clef__run_numbers *s, clef__number_texts *out, clef__report *report) {
    out->n = 0;
    for (int i = 0; i < FIELDS; i++) {
        if (!has_part(s, fields[i].part)) continue;
        int at = out->n++;
        out->number[at] = format_field(s, &fields[i]);
        out->key[at] = fields[i].key;
        out->text[at] = out->number[at].text;
        if (!in_range(s, &fields[i]))
            clef__report_set(report, CLEF_INVALID, "%s is %s, with which no run can continue", fields[i].key, out->text[at]);
    }
    format_shares(&s->shares, out->shares, sizeof out->shares);
    if (s->shares.n) {
        out->key[out->n] = shares_key;
        out->text[out->n++] = out->shares;
    }
    return report->status == CLEF_OK;
}

static void parse_number(clef__run_numbers *s, const struct field *field, const char *text, clef__report *report) {
    if (!text) clef__report_set(report, CLEF_FORMAT, "was saved without %s", field->key);
    else if (!parse_field(s, field, text))
        clef__report_set(report, CLEF_FORMAT, "has a damaged %s: %s", field->key, clef__quote(text).text);
    else if (!in_range(s, field))
        clef__report_set(report, CLEF_FORMAT, "has a %s with which no run can continue: %s", field->key, clef__quote(text).text);
}

bool clef__numbers_parse(clef__run_numbers *s, const clef__st_index *index, clef__report *report) {
    for (int i = 0; i < FIELDS && report->status == CLEF_OK; i++)
        if (has_part(s, fields[i].part)) parse_number(s, &fields[i], clef__st_metadata(index, fields[i].key), report);
    const char *shares = s->loader_present && report->status == CLEF_OK ? clef__st_metadata(index, shares_key) : NULL;
    if (shares && !parse_shares(shares, &s->shares))
        clef__report_set(report, CLEF_FORMAT, "has damaged shares of batches: %s", clef__quote(shares).text);
    return report->status == CLEF_OK;
}
