/* language_config.h — config.json of a language model, as Hugging Face writes it. */
#ifndef CLEF_IO_LANGUAGE_CONFIG_H
#define CLEF_IO_LANGUAGE_CONFIG_H
#include "io/io_internal.h"
#include "nn/language.h"

typedef struct clef__language_config {
    clef__language_made made;
    int64_t end_token[CLEF_END_TOKENS_MOST];
    int n_end_tokens;
} clef__language_config;
/* Reads the text, which is changed on the way. */
clef_status clef__language_config_read(char *text, size_t size, clef__language_config *config, clef__report *report);
/* The text for a language model. */
void clef__language_config_write(const clef_module *net, clef__text *text);
/* All of a file; clef__free it.  NULL after a report. */
char *clef__read_text_file(const char *path, size_t *size, clef__report *report);
#endif
