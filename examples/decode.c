/* One prompt, two answers: prefill once, fork, and decode a token of each in one step. */
#include <quire/quire.h>
#include <stdio.h>
#include <stdlib.h>

enum { kLayers = 4, kQueryHeads = 8, kKvHeads = 2, kDim = 64, kPrompt = 200 };
static float k[kPrompt * kKvHeads * kDim], v[kPrompt * kKvHeads * kDim];
static float q[kPrompt * kQueryHeads * kDim], out[kPrompt * kQueryHeads * kDim];

static void must(quire_status status) {
  if (status != QUIRE_OK) fprintf(stderr, "%s\n", quire_last_error()), exit(status);
}

/* Stands for the projections of a model. */
static quire_tensor project(float* data, int tokens, int heads) {
  for (int i = 0; i < tokens * heads * kDim; ++i) data[i] = (float)rand() / (float)RAND_MAX - 0.5f;
  return quire_tensor_dense(data, QUIRE_F32, tokens, heads, kDim, QUIRE_TOKEN_MAJOR);
}

/* One forward pass. A step is a transaction: nothing of it is seen elsewhere until commit. */
static void forward(quire_cache* cache, const quire_token* tokens, int count) {
  quire_batch batch = QUIRE_BATCH_INIT;
  quire_step* step;
  batch.tokens = tokens, batch.token_count = count;
  must(quire_cache_begin(cache, &batch, &step));
  for (int layer = 0; layer < kLayers; ++layer) {
    quire_tensor keys = project(k, count, kKvHeads), values = project(v, count, kKvHeads);
    quire_tensor query = project(q, count, kQueryHeads);
    quire_output output = quire_output_dense(out, count, kQueryHeads, kDim, QUIRE_TOKEN_MAJOR);
    must(quire_step_put(step, layer, &keys, &values));
    must(quire_step_attend(step, layer, &query, &output)); /* sees the rows just put */
  }
  must(quire_step_commit(step, NULL, 0, NULL));
  quire_step_free(step);
}

int main(void) {
  quire_layer_spec layer = QUIRE_LAYER_SPEC_INIT;
  quire_cache_spec spec = QUIRE_CACHE_SPEC_INIT;
  quire_cache* cache;
  must(quire_layer_spec_gqa(&layer, kQueryHeads, kKvHeads, kDim));
  layer.key_codec = layer.value_codec = "int8"; /* of full pages; the newest rows stay exact */
  spec.layers = &layer, spec.layer_count = 1, spec.repeat = kLayers;
  must(quire_cache_create(&spec, &cache));

  quire_sequence_id first, second;
  quire_token prompt[kPrompt];
  must(quire_sequence_open(cache, &first));
  must(quire_token_fill(prompt, kPrompt, first, 0, NULL));
  forward(cache, prompt, kPrompt);

  must(quire_sequence_fork(cache, first, &second)); /* shares every page */
  forward(cache, (quire_token[]){{first, kPrompt, 0}, {second, kPrompt, 0}}, 2);

  quire_stats stats = QUIRE_STATS_INIT;
  must(quire_cache_stats(cache, &stats));
  printf("%d pages, %d shared\n", (int)stats.pages_used, (int)stats.pages_shared);
  quire_cache_free(cache);
}
