/* Generating token by token: what whole sequences give, with no plan after the third token; batches, sliding, choosing.
   ctest: cost=30 together plain */
#include "support/device.h"
#include "clef/pointwise.h"

static clef_context *ctx;
static void open_context(void) { ctx = open_seeded(5); }
static void close_context(void) { close_clean(ctx); }
TestSuite(generator, .init = open_context, .fini = close_context);

enum { V = 23, CONTEXT = 48 };

/* Weights that are large enough for tokens to matter. */
static clef_module *sharp(clef_module *net) {
    for (int i = 0; i < clef_module_tensors(net); i++) {
        clef_tensor *t = clef_module_tensor(net, i).tensor;
        if (clef_tensor_shape(t).rank == 2) clef_init_normal(t, 0, 0.3);
    }
    clef_set_training(net, false);
    return net;
}
static clef_module *gpt(void) {
    return sharp(clef_nn_gpt(ctx, &(clef_gpt_options){.vocabulary = V, .context = CONTEXT, .layers = 2, .heads = 2, .width = 16}));
}
static clef_module *llama(void) {
    return sharp(clef_nn_llama(
        ctx, &(clef_llama_options){.vocabulary = V, .context = CONTEXT, .layers = 2, .heads = 4, .kv_heads = 2, .width = 16}));
}

static clef_module *lstm(void) {
    return sharp(
        clef_nn_lstm_language(ctx, &(clef_lstm_language_options){.vocabulary = V, .context = CONTEXT, .layers = 2, .width = 16}));
}

/* The logits of the last token by a whole run. */
static void expect_like_whole(clef_module *net, const float *logits, const int64_t *ids, int64_t n) {
    float *whole = values(clef_to(clef_forward(net, clef_from_host(ctx, CLEF_SHAPE(1, n), CLEF_I64, ids)), CLEF_F32));
    double far = 0;
    for (int i = 0; i < V; i++) far = fmax(far, fabs(whole[(n - 1) * V + i] - logits[i]));
    cr_expect(far < (clef_get_autocast(ctx) == CLEF_F32 ? 2e-5 : 1e-2), "%g away after %d tokens", far, (int)n);
    free(whole);
}

static int64_t id_of(int64_t i) { return i * i % 17 + i % 5; }

static void expect_step_by_step(clef_module *net, int64_t prompt) {
    int64_t ids[CONTEXT];
    for (int64_t i = 0; i < CONTEXT; i++) ids[i] = id_of(i);
    clef_generator *g = clef_generator_new(net, NULL);
    cr_assert_eq(clef_generator_prompt(g, (const int64_t *[]){ids}, &prompt), CLEF_OK, "%s", clef_error(ctx));
    expect_like_whole(net, clef_generator_logits(g), ids, prompt);
    for (int64_t n = prompt; n < CONTEXT; n++) {
        cr_assert_eq(clef_generator_feed(g, &ids[n]), CLEF_OK, "%s", clef_error(ctx));
        if (n % 6 == 0 || n > CONTEXT - 3) expect_like_whole(net, clef_generator_logits(g), ids, n + 1);
    }
    cr_expect_eq(clef_generator_length(g), CONTEXT);
    cr_expect_eq(clef_generator_feed(g, ids), CLEF_STATE);
    expect_error(ctx, CLEF_STATE, "its 48 tokens are full; .slide drops the first ones");
    clef_generator_close(g);
}
Test(generator, tokens_one_by_one_give_what_whole_sequences_give) {
    expect_step_by_step(gpt(), 1);
    expect_step_by_step(llama(), 37);
    expect_step_by_step(lstm(), 1);
    expect_step_by_step(lstm(), 37);
}

/* The logits come in the low type, and the keys that are kept do, or do not. */
Test(generator, tokens_one_by_one_under_autocast) {
    static const clef_dtype lows[] = {CLEF_F16, CLEF_BF16};
    for (int i = 0; i < 2; i++) {
        clef_set_autocast(ctx, lows[i]);
        expect_step_by_step(gpt(), 5);
        if (!few_kernels()) expect_step_by_step(llama(), 5), expect_step_by_step(lstm(), 5);
    }
    clef_set_autocast(ctx, CLEF_F32);
}

Test(generator, prompts_of_different_lengths_are_as_if_alone) {
    clef_module *nets[] = {gpt(), llama(), lstm()};
    int64_t ids[3][CONTEXT], length[3] = {3, 11, 8}, next[3];
    for (int64_t i = 0; i < 3 * CONTEXT; i++) ids[i / CONTEXT][i % CONTEXT] = (id_of(i % CONTEXT) + i / CONTEXT) % V;
    for (int m = 0; m < 3; m++) {
        clef_generator *g = clef_generator_new(nets[m], &(clef_generator_options){.batch = 3, .capacity = 32});
        cr_assert_eq(clef_generator_prompt(g, (const int64_t *[]){ids[0], ids[1], ids[2]}, length), CLEF_OK);
        for (int step = 0; step < 4; step++) {
            for (int i = 0; i < 3; i++)
                expect_like_whole(nets[m], clef_generator_logits(g) + (size_t)i * V, ids[i], length[i] + step);
            for (int i = 0; i < 3; i++) next[i] = ids[i][length[i] + step];
            cr_assert_eq(clef_generator_feed(g, next), CLEF_OK);
        }
        cr_assert_eq(clef_generator_reorder(g, (int64_t[]){2, 0, 2}), CLEF_OK);
        const int from[] = {2, 0, 2};
        for (int i = 0; i < 3; i++) next[i] = ids[from[i]][length[from[i]] + 4];
        cr_assert_eq(clef_generator_feed(g, next), CLEF_OK);
        for (int i = 0; i < 3; i++)
            expect_like_whole(nets[m], clef_generator_logits(g) + (size_t)i * V, ids[from[i]], length[from[i]] + 5);
    }
}

static void expect_no_plan_after_the_third_token(clef_module *net) {
    clef_generator *g = clef_generator_new(net, NULL);
    int64_t id = 1, n = 1, tokens = few_kernels() ? 100 : 1000;
    cr_assert_eq(clef_generator_prompt(g, (const int64_t *[]){&id}, &n), CLEF_OK);
    clef_counters before = {0};
    for (int64_t i = 0; i < tokens; i++) {
        if (i == 3) before = clef_counters_get(ctx);
        cr_assert_eq(clef_generator_sample(g, &(clef_sampling){.temperature = 1}, &id), CLEF_OK);
        cr_assert_eq(clef_generator_feed(g, &id), CLEF_OK);
    }
    clef_counters after = clef_counters_get(ctx);
    cr_expect_eq(after.plans, before.plans, "%d plans", (int)(after.plans - before.plans));
    cr_expect_eq(after.kernels_built, before.kernels_built);
    cr_expect_eq(after.kernels_from_cache, before.kernels_from_cache);
}
Test(generator, nothing_is_planned_or_compiled_after_the_third_token) {
    expect_no_plan_after_the_third_token(
        clef_nn_gpt(ctx, &(clef_gpt_options){.vocabulary = V, .context = 1024, .layers = 1, .heads = 1, .width = 8}));
    expect_no_plan_after_the_third_token(
        clef_nn_lstm_language(ctx, &(clef_lstm_language_options){.vocabulary = V, .context = 1024, .layers = 2, .width = 8}));
}

/* A second prompt begins with states of 0, whatever the first one left. */
Test(generator, a_recurrent_net_forgets_the_former_prompt) {
    clef_module *net = lstm();
    int64_t ids[CONTEXT], n = 7;
    for (int64_t i = 0; i < CONTEXT; i++) ids[i] = id_of(i);
    clef_generator *g = clef_generator_new(net, NULL);
    for (int64_t from = 0; from < 3; from++) {
        cr_assert_eq(clef_generator_prompt(g, (const int64_t *[]){ids + 7 * from}, &n), CLEF_OK);
        expect_like_whole(net, clef_generator_logits(g), ids + 7 * from, n);
    }
}

static void expect_slides(clef_module *net) {
    int64_t ids[100];
    for (int64_t i = 0; i < 100; i++) ids[i] = id_of(i);
    clef_generator *g = clef_generator_new(net, &(clef_generator_options){.capacity = 16, .slide = true});
    int64_t n = 20, first = 4; /* the last 16 */
    cr_assert_eq(clef_generator_prompt(g, (const int64_t *[]){ids}, &n), CLEF_OK);
    for (; n < 50; n++) {
        expect_like_whole(net, clef_generator_logits(g), ids + first, n - first);
        cr_assert_eq(clef_generator_feed(g, &ids[n]), CLEF_OK, "%s", clef_error(ctx));
        if (n - first == 16) first += 8;
        cr_assert_eq(clef_generator_length(g), n + 1 - first);
    }
}
Test(generator, a_window_slides) {
    expect_slides(llama());
    expect_slides(lstm());
}

/* ---- choosing ---- */
static void counts(clef_generator *g, clef_sampling how, int n, int count[V]) {
    memset(count, 0, V * sizeof *count);
    for (int i = 0; i < n; i++) {
        int64_t token;
        how.seed = (uint64_t)i;
        cr_assert_eq(clef_generator_sample(g, &how, &token), CLEF_OK);
        count[token]++;
    }
}

Test(generator, tokens_are_chosen_by_their_probabilities) {
    enum { DRAWS = 20000 };
    clef_generator *g = clef_generator_new(gpt(), NULL);
    int64_t ids[] = {3, 1, 4}, n = 3, token, again;
    cr_assert_eq(clef_generator_prompt(g, (const int64_t *[]){ids}, &n), CLEF_OK);
    const float *logits = clef_generator_logits(g);
    int best = 0, count[V], larger[V] = {0};
    double p[V], sum = 0;
    for (int i = 0; i < V; i++) best = logits[i] > logits[best] ? i : best;
    for (int i = 0; i < V; i++) sum += p[i] = exp((logits[i] - logits[best]) / 1.5);
    for (int i = 0; i < V; i++)
        for (int j = 0; j < V; j++) larger[i] += logits[j] > logits[i];
    cr_assert_eq(clef_generator_sample(g, NULL, &token), CLEF_OK);
    cr_expect_eq(token, best);
    counts(g, (clef_sampling){.temperature = 1.5}, DRAWS, count);
    for (int i = 0; i < V; i++) {
        double want = p[i] / sum, deviation = sqrt(want * (1 - want) / DRAWS);
        cr_expect(fabs((double)count[i] / DRAWS - want) < 5 * deviation + 1e-4, "token %d: %d, not %g", i, count[i], want * DRAWS);
    }
    counts(g, (clef_sampling){.temperature = 5, .top_k = 4}, 2000, count);
    for (int i = 0; i < V; i++) cr_expect_eq(count[i] > 0, larger[i] < 4, "token %d", i);
    counts(g, (clef_sampling){.temperature = 1.5, .min_p = 0.3}, 2000, count);
    for (int i = 0; i < V; i++) cr_expect_eq(count[i] > 0, p[i] >= 0.3, "token %d: %g", i, p[i]);
    counts(g, (clef_sampling){.temperature = 1.5, .top_p = 0.5}, 2000, count);
    for (int i = 0; i < V; i++) {
        double above = 0;
        for (int j = 0; j < V; j++) above += larger[j] < larger[i] ? p[j] / sum : 0;
        cr_expect_eq(count[i] > 0, above < 0.5, "token %d: %g above", i, above);
    }
    clef_sampling same = {.temperature = 2, .seed = 9};
    cr_expect(!clef_generator_sample(g, &same, &token) && !clef_generator_sample(g, &same, &again) && token == again);
    ids[0] = best, n = 1; /* penalised beyond all others once the sequence has it */
    cr_expect_eq(clef_generator_sample(g, &(clef_sampling){.top_p = 2}, &token), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "top_p and min_p within [0,1]");
}

/* Whatever is asked for, what is chosen is among the likeliest, and the last of these is chosen too.  Shares of a vocabulary so flat are
   hundreds of tokens. */
Test(generator, of_a_long_vocabulary_the_likeliest_are_found) {
    enum { LONG = 3000, DRAWS = 4000 };
    static double p[LONG];
    static int rank[LONG], by_rank[LONG];
    clef_generator *g = clef_generator_new(
        clef_nn_gpt(ctx, &(clef_gpt_options){.vocabulary = LONG, .context = 8, .layers = 1, .heads = 1, .width = 8}), NULL);
    int64_t ids[] = {3, 1, 4}, n = 3, token;
    cr_assert_eq(clef_generator_prompt(g, (const int64_t *[]){ids}, &n), CLEF_OK);
    const float *logits = clef_generator_logits(g);
    double sum = 0, top = -INFINITY;
    for (int i = 0; i < LONG; i++) top = fmax(top, logits[i]);
    for (int i = 0; i < LONG; i++) sum += p[i] = exp(logits[i] - top), rank[i] = 0;
    for (int i = 0; i < LONG; i++)
        for (int j = 0; j < LONG; j++) rank[i] += logits[j] > logits[i] || (logits[j] == logits[i] && j < i);
    for (int i = 0; i < LONG; i++) by_rank[rank[i]] = i;
    static const clef_sampling how[] = {{.temperature = 1, .top_k = 5},
                                        {.temperature = 1, .top_k = 100},
                                        {.temperature = 1, .top_k = 2999},
                                        {.temperature = 1, .top_p = 0.01},
                                        {.temperature = 1, .top_p = 0.1},
                                        {.temperature = 1, .top_p = 0.5},
                                        {.temperature = 1, .top_k = 200, .top_p = 0.5},
                                        {.temperature = 1, .min_p = 0.99},
                                        {.temperature = 1, .top_p = 0.5, .min_p = 0.98}};
    for (size_t h = 0; h < sizeof how / sizeof how[0]; h++) {
        int64_t k = how[h].top_k ? how[h].top_k : LONG;
        double all = 0, share = 0;
        for (int r = 0; r < k; r++) all += p[by_rank[r]];
        for (int r = 0; how[h].top_p > 0 && r < k; r++) {
            share += p[by_rank[r]];
            if (share >= how[h].top_p * all) k = r + 1;
        }
        while (k > 1 && p[by_rank[k - 1]] < how[h].min_p) k--;
        int64_t furthest = 0;
        clef_sampling s = how[h];
        for (s.seed = 0; s.seed < DRAWS; s.seed++) {
            cr_assert_eq(clef_generator_sample(g, &s, &token), CLEF_OK);
            furthest = rank[token] > furthest ? rank[token] : furthest;
        }
        cr_expect(furthest < k, "case %d: the %d-th likeliest was chosen, of %d", (int)h, (int)furthest, (int)k);
        cr_expect(furthest + 1 >= k - k / 16, "case %d: none behind the %d-th, of %d", (int)h, (int)furthest, (int)k);
    }
}

/* A net whose logits are these, whatever it reads: width 1, so that the final norm gives its bias, 1, and the head's weight is the logits. */
static clef_generator *with_logits(const float logits[V]) {
    clef_module *net = clef_nn_gpt(
        ctx, &(clef_gpt_options){.vocabulary = V, .context = CONTEXT, .layers = 1, .heads = 1, .width = 1, .untied = true});
    float one = 1;
    clef_write(clef_parameter(net, "ln_f.bias"), &one, sizeof one);
    clef_write(clef_parameter(net, "lm_head.weight"), logits, V * sizeof *logits);
    clef_generator *g = clef_generator_new(net, NULL);
    int64_t id = 0, n = 1;
    cr_assert_eq(clef_generator_prompt(g, (const int64_t *[]){&id}, &n), CLEF_OK, "%s", clef_error(ctx));
    return g;
}

Test(generator, excluded_tokens_and_logits_that_are_no_numbers) {
    float logits[V];
    int64_t token;
    for (int i = 0; i < V; i++) logits[i] = i == 2 || i == 5 ? (float)i : -INFINITY;
    clef_generator *g = with_logits(logits);
    static const clef_sampling how[] = {{.temperature = 0},
                                        {.temperature = 1},
                                        {.temperature = 1, .top_p = 1},
                                        {.temperature = 1, .top_k = 4},
                                        {.temperature = 1, .min_p = 0.01},
                                        {.temperature = 3, .top_k = V, .top_p = 0.999, .min_p = 0.01, .repeat_penalty = 2}};
    for (size_t h = 0; h < sizeof how / sizeof how[0]; h++) {
        int count[V];
        counts(g, how[h], 500, count);
        cr_expect_eq(count[2] + count[5], 500, "case %d", (int)h);
        cr_expect_eq(count[2] > 0, how[h].temperature > 0, "case %d", (int)h);
    }
    for (int i = 0; i < V; i++) logits[i] = -INFINITY;
    g = with_logits(logits);
    cr_expect_eq(clef_generator_sample(g, &how[1], &token), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "every logit is -inf");
    static const float bad[] = {NAN, INFINITY};
    for (int b = 0; b < 2; b++) {
        logits[0] = 1, logits[3] = bad[b];
        g = with_logits(logits);
        cr_expect_eq(clef_generator_sample(g, NULL, &token), CLEF_INVALID);
        expect_error(ctx, CLEF_INVALID, b ? "token 3: the logit is infinite" : "token 3: the logit is NaN");
        clef_beam found;
        const int64_t id = 0, n = 1;
        cr_expect_eq(clef_generator_beams(g, (const int64_t *[]){&id}, &n, NULL, &found), CLEF_INVALID);
        expect_error(ctx, CLEF_INVALID, "token 3: the logit is");
    }
}

/* Its logits are the generator's own memory, which has here what few models give: equal ones, and excluded tokens. */
Test(generator, of_equal_ones_the_first_is_the_most_probable) {
    enum { ODD = 1301, TRIALS = 400 };
    clef_generator *g = clef_generator_new(
        clef_nn_gpt(ctx, &(clef_gpt_options){.vocabulary = ODD, .context = 8, .layers = 1, .heads = 1, .width = 8}), NULL);
    int64_t id = 3, n = 1, token;
    cr_assert_eq(clef_generator_prompt(g, (const int64_t *[]){&id}, &n), CLEF_OK);
    float *x = (float *)(uintptr_t)clef_generator_logits(g);
    static const float odd[] = {-2, -INFINITY, -1, 0};
    static const int first[] = {0, 1, 15, 16, 511, 512, 1023, 1024, 1295, 1296, 1300};
    uint32_t draw = 1;
    for (int trial = 0; trial < TRIALS; trial++) {
        int at = first[trial % 11], largest = 0;
        for (int i = 0; i < ODD; i++) {
            draw = draw * 1664525 + 1013904223;
            x[i] = trial < 44 ? odd[trial / 11] : trial % 2 ? odd[draw >> 30] : (float)(draw >> 26);
        }
        if (trial % 3) x[at] = 7;
        if (trial % 3 == 2) x[first[trial / 11 % 11]] = 7;
        for (int i = 1; i < ODD; i++)
            if (x[i] > x[largest]) largest = i;
        bool possible = x[largest] > -INFINITY;
        cr_assert_eq(clef_generator_sample(g, NULL, &token), possible ? CLEF_OK : CLEF_INVALID, "trial %d", trial);
        if (possible) cr_expect_eq(token, largest, "trial %d: %d in place of %d", trial, (int)token, largest);
        else expect_error(ctx, CLEF_INVALID, "every logit is -inf");
    }
}

Test(generator, repeating_is_penalised) {
    clef_generator *g = clef_generator_new(gpt(), NULL);
    int64_t ids[V], n = V, token;
    for (int64_t i = 0; i < V; i++) ids[i] = i;
    cr_assert_eq(clef_generator_prompt(g, (const int64_t *[]){ids}, &n), CLEF_OK);
    int64_t without;
    cr_assert_eq(clef_generator_sample(g, NULL, &without), CLEF_OK);
    cr_assert_eq(clef_generator_sample(g, &(clef_sampling){.repeat_penalty = 3}, &token), CLEF_OK);
    cr_expect_eq(token, without, "all are penalised once, in the same way");
    n = 1, ids[0] = 0;
    for (int64_t i = 0; i < 8; i++) { /* with a strong penalty no token comes twice, while positive ones are left */
        cr_assert_eq(i ? clef_generator_feed(g, &token) : clef_generator_prompt(g, (const int64_t *[]){ids}, &n), CLEF_OK);
        cr_assert_eq(clef_generator_sample(g, &(clef_sampling){.repeat_penalty = 1e6}, &token), CLEF_OK);
        for (int64_t j = 0; j <= i; j++) cr_expect_neq(token, ids[j]);
        ids[i + 1] = token;
    }
}

/* ---- beam search ---- */
enum { END = 4 };

/* log p of each token after these. */
static void log_probabilities(clef_module *net, const int64_t *ids, int64_t n, double p[V]) {
    float *logits = values(clef_forward(net, clef_from_host(ctx, CLEF_SHAPE(1, n), CLEF_I64, ids)));
    double sum = 0;
    for (int i = 0; i < V; i++) sum += exp(logits[(n - 1) * V + i]);
    for (int i = 0; i < V; i++) p[i] = logits[(n - 1) * V + i] - log(sum);
    free(logits);
}

/* Scores of all texts of up to two tokens: [first][second], an end alone in [END][0]. */
static void score_all(clef_module *net, const int64_t *prompt, int64_t n, double penalty, double score[V][V]) {
    int64_t ids[CONTEXT];
    double first[V], second[V];
    memcpy(ids, prompt, (size_t)n * sizeof *ids);
    log_probabilities(net, ids, n, first);
    for (int i = 0; i < V; i++) {
        ids[n] = i;
        log_probabilities(net, ids, n + 1, second);
        for (int j = 0; j < V; j++)
            score[i][j] = i != END ? (first[i] + second[j]) / pow(2, penalty) : j == 0 ? first[i] : -INFINITY;
    }
}

static void expect_best(double score[V][V], const clef_beam *found, int best) {
    for (int k = 0; k < best; k++) {
        int at = 0;
        for (int i = 0; i < V * V; i++) at = score[i / V][i % V] > score[at / V][at % V] ? i : at;
        bool single = at / V == END;
        cr_expect(found[k].n == (single ? 1 : 2) && found[k].token[0] == at / V && (single || found[k].token[1] == at % V),
                  "result %d: %d tokens, %d …, not %d %d", k, (int)found[k].n, (int)found[k].token[0], at / V, at % V);
        cr_expect(fabs(found[k].score - score[at / V][at % V]) < 1e-4);
        cr_expect_eq(found[k].ended, single || at % V == END);
        score[at / V][at % V] = -INFINITY;
    }
}

/* With as many beams as tokens, two steps leave nothing out. */
Test(generator, as_many_beams_as_tokens_find_the_best_texts) {
    enum { BEST = 6 };
    static const double penalties[] = {0, 1, 3};
    int64_t ids[2][CONTEXT], length[2] = {3, 9}, end = END;
    double score[V][V];
    clef_beam found[2 * BEST];
    for (int64_t i = 0; i < 2 * CONTEXT; i++) ids[i / CONTEXT][i % CONTEXT] = (id_of(i % CONTEXT) + i / CONTEXT) % V;
    clef_module *net = gpt();
    clef_generator *g = clef_generator_new(net, &(clef_generator_options){.batch = 2 * V, .capacity = 16});
    for (int i = 0; i < 3; i++) {
        clef_beam_options o = {
            .beams = V, .tokens = 2, .best = BEST, .length_penalty = penalties[i], .end_token = &end, .n_end_tokens = 1};
        cr_assert_eq(clef_generator_beams(g, (const int64_t *[]){ids[0], ids[1]}, length, &o, found), CLEF_OK, "%s",
                     clef_error(ctx));
        for (int p = 0; p < 2; p++) {
            score_all(net, ids[p], length[p], penalties[i], score);
            expect_best(score, found + p * BEST, BEST);
        }
    }
}

/* Beams go on from what they came from: a result's score is what whole runs give its tokens. */
static void expect_scores_of_texts(clef_module *net) {
    enum { BEAMS = 5, TOKENS = 7 };
    int64_t ids[] = {3, 1, 4, 1, 5, 0, 0, 0, 0, 0, 0, 0}, n = 5;
    double p[V];
    clef_beam found[BEAMS];
    clef_generator *g = clef_generator_new(net, &(clef_generator_options){.batch = BEAMS});
    cr_assert_eq(
        clef_generator_beams(g, (const int64_t *[]){ids}, &n, &(clef_beam_options){.tokens = TOKENS, .best = BEAMS}, found),
        CLEF_OK);
    for (int b = 0; b < BEAMS; b++) {
        double sum = 0;
        for (int i = 0; i < TOKENS; i++) {
            log_probabilities(net, ids, n + i, p);
            sum += p[ids[n + i] = found[b].token[i]];
        }
        cr_expect(found[b].n == TOKENS && fabs(found[b].score - sum) < 1e-4, "%g, not %g", found[b].score, sum);
        cr_expect(b == 0 || found[b].score <= found[b - 1].score);
    }
}
Test(generator, scores_of_beams_are_those_of_their_texts) {
    expect_scores_of_texts(gpt());
    expect_scores_of_texts(sharp(
        clef_nn_lstm_language(ctx, &(clef_lstm_language_options){.vocabulary = V, .context = CONTEXT, .layers = 1, .width = 16})));
}

/* One beam takes the most probable token each time; a window slides under it. */
Test(generator, one_beam_is_greedy) {
    clef_generator *g = clef_generator_new(llama(), &(clef_generator_options){.capacity = 16, .slide = true});
    int64_t ids[] = {3, 1, 4}, n = 3, token, made[40];
    clef_beam found;
    cr_assert_eq(clef_generator_prompt(g, (const int64_t *[]){ids}, &n), CLEF_OK);
    for (int i = 0; i < 40; i++) {
        cr_assert_eq(clef_generator_sample(g, NULL, &made[i]), CLEF_OK);
        cr_assert_eq(clef_generator_feed(g, &made[i]), CLEF_OK);
    }
    cr_assert_eq(clef_generator_beams(g, (const int64_t *[]){ids}, &n, &(clef_beam_options){.tokens = 40}, &found), CLEF_OK);
    cr_assert_eq(found.n, 40);
    for (int i = 0; i < 40; i++) cr_expect_eq(found.token[i], made[i], "token %d", i);
    token = made[5]; /* it ends a text before the others are seen */
    cr_assert_eq(
        clef_generator_beams(g, (const int64_t *[]){ids}, &n, &(clef_beam_options){.end_token = &token, .n_end_tokens = 1}, &found),
        CLEF_OK);
    cr_expect(found.ended && found.n <= 6 && found.token[found.n - 1] == token);
}

/* user: how often it was called, and the token that is one too many. */
static bool count_tokens(void *user, int64_t made, int64_t tokens) {
    int64_t *calls = user;
    cr_expect(made == ++calls[0] && tokens == 6, "%d of %d", (int)made, (int)tokens);
    return made < calls[1];
}

Test(generator, beams_that_do_not_fit_are_said) {
    clef_generator *g = clef_generator_new(gpt(), &(clef_generator_options){.batch = 4, .capacity = 8});
    int64_t ids[] = {3, 1, 4}, n = 3;
    const int64_t *prompt = ids;
    clef_beam found[4];
    cr_expect_eq(clef_generator_beams(g, &prompt, &n, &(clef_beam_options){.beams = 3}, found), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "3 beams in a batch of 4; they must divide it");
    cr_expect_eq(clef_generator_beams(g, &prompt, &n, &(clef_beam_options){.best = 5}, found), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "the 5 best of 4 beams");
    cr_expect_eq(clef_generator_beams(g, &prompt, &n, &(clef_beam_options){.tokens = 7}, found), CLEF_STATE);
    expect_error(ctx, CLEF_STATE, "7 tokens after a prompt of 3, but a capacity of 8");
    cr_expect_eq(clef_generator_beams(g, &prompt, &n, NULL, NULL), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "found is NULL");
    cr_expect_eq(clef_generator_beams(g, &prompt, &n, &(clef_beam_options){.tokens = 6, .best = 4}, found), CLEF_OK);
    cr_expect(found[3].n == 6 && found[0].score >= found[3].score);
    int64_t calls[2] = {0, 3};
    clef_beam_options watched = {.tokens = 6, .on_progress = count_tokens, .user = calls};
    cr_expect_eq(clef_generator_beams(g, &prompt, &n, &watched, found), CLEF_INTERRUPTED);
    expect_error(ctx, CLEF_INTERRUPTED, "the search was stopped after 3 of 6 tokens");
    calls[0] = 0, calls[1] = 100;
    cr_expect_eq(clef_generator_beams(g, &prompt, &n, &watched, found), CLEF_OK);
    cr_expect_eq(calls[0], 5, "%d calls; the last token is read by nobody", (int)calls[0]);
}

Test(generator, sizes_whose_products_are_no_numbers_are_refused) {
    clef_generator *g = clef_generator_new(lstm(), &(clef_generator_options){.batch = 8, .slide = true});
    int64_t ids[] = {3, 1, 4}, n = 3;
    clef_beam found;
    cr_expect_eq(clef_generator_beams(g, (const int64_t *[]){ids}, &n, &(clef_beam_options){.tokens = (int64_t)1 << 61}, &found),
                 CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "tokens not negative and below 2^31");
    cr_expect_null(clef_nn_lstm_language(ctx, &(clef_lstm_language_options){.vocabulary = V, .context = (int64_t)1 << 62}));
    expect_error(ctx, CLEF_INVALID, "a size is 2^31 or more");
    cr_expect_null(
        clef_nn_llama(ctx, &(clef_llama_options){.heads = (int64_t)1 << 30, .head_width = 1 << 30, .width = 8, .layers = 1}));
    expect_error(ctx, CLEF_INVALID, "a size is 2^31 or more");
}

/* On the second device: the same logits, in one batch and in another order. */
static void expect_elsewhere(clef_module *(*make)(void)) {
    int64_t ids[2][CONTEXT], length[2] = {5, 9};
    float first[2 * V];
    for (int64_t i = 0; i < 2 * CONTEXT; i++) ids[i / CONTEXT][i % CONTEXT] = (id_of(i % CONTEXT) + i / CONTEXT) % V;
    clef_module *net = make();
    for (int device = 0; device < 2; device++) {
        cr_assert_eq(clef_module_to(net, device), CLEF_OK);
        clef_generator *g = clef_generator_new(net, &(clef_generator_options){.batch = 2});
        cr_assert(g, "%s", clef_error(ctx));
        cr_expect_eq(clef_generator_prompt(g, (const int64_t *[]){ids[0], ids[1]}, length), CLEF_OK, "%s", clef_error(ctx));
        cr_expect_eq(clef_generator_reorder(g, (int64_t[]){1, 1}), CLEF_OK, "%s", clef_error(ctx));
        cr_expect_eq(clef_generator_feed(g, (int64_t[]){7, 8}), CLEF_OK, "%s", clef_error(ctx));
        if (device == 0) memcpy(first, clef_generator_logits(g), sizeof first);
        else cr_expect_arr_eq(clef_generator_logits(g), first, sizeof first);
        clef_generator_close(g);
    }
}
Test(generator, on_another_device) {
    clef_close(ctx);
    ctx = clef_open(&(clef_options){.device = "0/2", .seed = 3});
    if (!ctx) {
        ctx = open_seeded(5);
        cr_skip_test("no device in two halves here");
    }
    expect_elsewhere(gpt);
    expect_elsewhere(llama);
    expect_elsewhere(lstm);
    clef_module *net = gpt();
    clef_module_to(clef_module_child(net, "h"), 1);
    cr_expect_null(clef_generator_new(net, NULL));
    expect_error(ctx, CLEF_UNSUPPORTED, "lies on several devices; clef_module_to brings it to one");
}

Test(generator, what_does_not_fit_is_said) {
    clef_module *net = gpt();
    cr_expect_null(clef_generator_new(clef_nn_relu(ctx), NULL));
    expect_error(ctx, CLEF_INVALID, "generator: the relu is no language model");
    cr_expect_null(clef_generator_new(net, &(clef_generator_options){.capacity = 49}));
    expect_error(ctx, CLEF_INVALID, "capacity 49; the capacity is 2 to the model's context of 48");
    clef_generator *g = clef_generator_new(net, &(clef_generator_options){.capacity = 4});
    int64_t ids[] = {0, 1, 2, 3, 4}, n = 5, token = V;
    cr_expect_null(clef_generator_logits(g));
    cr_expect_eq(clef_generator_feed(g, ids), CLEF_STATE);
    expect_error(ctx, CLEF_STATE, "clef_generator_prompt begins");
    cr_expect_eq(clef_generator_prompt(g, (const int64_t *[]){ids}, &n), CLEF_STATE);
    expect_error(ctx, CLEF_STATE, "a prompt of 5 tokens, but a capacity of 4");
    n = 0;
    cr_expect_eq(clef_generator_prompt(g, (const int64_t *[]){ids}, &n), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "a prompt is empty");
    n = 1;
    cr_expect_eq(clef_generator_prompt(g, (const int64_t *[]){ids}, &n), CLEF_OK);
    cr_expect_eq(clef_generator_feed(g, &token), CLEF_INVALID);
    expect_error(ctx, CLEF_INVALID, "token 23 is not within 0 … 22");
    clef_generator_close(NULL);
}
