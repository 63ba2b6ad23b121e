/* read.h — a tokenizer's files as bytes, to be read without a context's help: what fuzzing calls. */
#ifndef CLEF_TEXT_READ_H
#define CLEF_TEXT_READ_H
#include "runtime/json.h"
#include "text/text_internal.h"

typedef struct clef__reading {
    clef_tokenizer *t;
    clef__json json;
    clef__why *why;  /* the first of our own; those of JSON are in `json` */
    int64_t most;    /* above all numbers of tokens */
    bool vocabulary; /* there were tokens of the model */
} clef__reading;
/* Fill a tokenizer that is empty; false with why. */
bool clef__read_tokenizer(clef_tokenizer *tokenizer, const uint8_t *bytes, size_t size, clef__why *why);
/* BERT's vocab.txt, and before it tokenizer_config.json, if there is one. */
bool clef__read_words(clef_tokenizer *tokenizer, const clef__blob *lines, clef__why *why);
bool clef__read_bert_config(clef_tokenizer *tokenizer, clef__blob *config, clef__why *why);
bool clef__read_gpt2(clef_tokenizer *tokenizer, clef__blob *vocabulary, clef__blob *merges, clef__why *why);
/* Parts of these: an object of tokens and their numbers; a merge of two strings, which are changed. */
bool clef__read_vocabulary(clef__reading *reading);
bool clef__read_merge(clef__reading *reading, char *left, char *right);
#endif
