/* `rnn` of the programs, h = tanh(h w + b), n times, and its derivatives by h, w and b, as a C programmer writes them.

   BATCH and HIDDEN are constants of the compilation. A row of the state is a vector of the processor (an extension of C
   that GCC and Clang have), so that the sums of a product stay in registers; HIDDEN must be a power of 2. The library's
   tanh works on one number at a time; the one below is computed for a row. */

#include <stdlib.h>
#include <string.h>

typedef float Row __attribute__((vector_size(HIDDEN * sizeof(float))));
typedef int Mask __attribute__((vector_size(HIDDEN * sizeof(int))));

static inline Row chosen(Mask mask, Row a, Row b) { return (Row)((mask & (Mask)a) | (~mask & (Mask)b)); }

/* x P(x^2) / Q(x^2), fitted over [0, 9] with a relative error below 3e-8 before rounding. Beyond 9 tanh rounds to 1. */
static inline Row tanh_of(Row x) {
  const Row limit = (Row){0} + 9.0f;
  x = chosen(x > limit, limit, x);
  x = chosen(x < -limit, -limit, x);
  const Row t = x * x;
  const Row p =
      (((1.335469468e-08f * t + 2.060910828e-05f) * t + 3.495589789e-03f) * t + 1.338102707e-01f) * t + 9.999999795e-01f;
  const Row q = (((7.776572482e-07f * t + 3.285637478e-04f) * t + 2.587698860e-02f) * t + 4.671434266e-01f) * t + 1.0f;
  return x * p / q;
}

/* out = h w + b; b may be 0 */
static inline void product(const Row *h, const Row *w, Row b, Row *out) {
  Row z[BATCH];
  for (int r = 0; r < BATCH; r++) z[r] = b;
  for (int k = 0; k < HIDDEN; k++)
    for (int r = 0; r < BATCH; r++) z[r] += h[r][k] * w[k];
  for (int r = 0; r < BATCH; r++) out[r] = z[r];
}

static inline void step(const Row *h, const Row *w, Row b, Row *out) {
  product(h, w, b, out);
  for (int r = 0; r < BATCH; r++) out[r] = tanh_of(out[r]);
}

static float sum_of_squares(const Row *h) {
  float sum = 0.0f;
  for (int r = 0; r < BATCH; r++)
    for (int j = 0; j < HIDDEN; j++) sum += h[r][j] * h[r][j];
  return sum;
}

/* The sum of the squares of the last state. */
void rnn(int n, const float *h, const float *w_, const float *b_, float *loss) {
  Row now[BATCH], w[HIDDEN], b;
  memcpy(now, h, sizeof now);
  memcpy(w, w_, sizeof w);
  memcpy(&b, b_, sizeof b);
  for (int t = 0; t < n; t++) step(now, w, b, now);
  *loss = sum_of_squares(now);
}

/* The same, and its derivatives. Returns 0, or 1 if there is no memory. */
int rnn_gradient(int n, const float *h, const float *w_, const float *b_, float *loss, float *by_h, float *by_w,
                 float *by_b) {
  Row w[HIDDEN], back[HIDDEN], b, dh[BATCH], dw[HIDDEN] = {{0}}, db = {0};
  Row(*states)[BATCH] = aligned_alloc(sizeof(Row), (n + 1) * sizeof *states);
  if (!states) return 1;
  memcpy(states[0], h, sizeof *states);
  memcpy(w, w_, sizeof w);
  memcpy(&b, b_, sizeof b);
  for (int t = 0; t < n; t++) step(states[t], w, b, states[t + 1]);
  *loss = sum_of_squares(states[n]);

  for (int k = 0; k < HIDDEN; k++)
    for (int j = 0; j < HIDDEN; j++) back[j][k] = w[k][j];
  for (int r = 0; r < BATCH; r++) dh[r] = 2.0f * states[n][r];
  for (int t = n - 1; t >= 0; t--) {
    Row dz[BATCH];
    for (int r = 0; r < BATCH; r++) {
      dz[r] = dh[r] * (1.0f - states[t + 1][r] * states[t + 1][r]);
      db += dz[r];
    }
    for (int k = 0; k < HIDDEN; k++)
      for (int r = 0; r < BATCH; r++) dw[k] += states[t][r][k] * dz[r];
    product(dz, back, (Row){0}, dh);
  }
  memcpy(by_h, dh, sizeof dh);
  memcpy(by_w, dw, sizeof dw);
  memcpy(by_b, &db, sizeof db);
  free(states);
  return 0;
}
