/* What a training step does on a CPU between its matrix products and attention.
 *
 * torch makes each of these of several passes over memory, with a cast before and after: here each is one.
 * All arithmetic is in float32; tensors that products read or write are numbers, and the residual stream,
 * the statistics of norms, losses and the gradients of vectors are float32. Threads take equal shares in a
 * fixed order, so the same number of threads gives the same bits.
 *
 * Everything is contiguous. Shapes: R rows (tokens), C channels, V vocabulary.
 */
#include "fates.h"

/* The normal distribution's cumulative at x, given exp(-x^2 / 2); within 1.5e-7 (Abramowitz and Stegun
 * 7.1.26). */
static inline float normal(float x, float bell)
{
    float t = 1.0f / (1.0f + 0.3275911f * 0.70710678f * fabsf(x));
    float p = 1.061405429f;
    p = p * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    float tail = 0.5f * p * t * bell;
    return x < 0.0f ? tail : 1.0f - tail;
}

static inline float bell_of(float x) { return exponential(-0.5f * x * x); }

/* Elements whose results are rounded together. */
enum { PIECE = 256 };

/* y = gelu(x). */
void gelu(const number *x, number *y, i64 count, int threads)
{
#pragma omp parallel for num_threads(threads) if (parallel : SHARED(count)) schedule(static)
    for (i64 begin = 0; begin < count; begin += PIECE) {
        const number *in = x + begin;
        i64 size = least(PIECE, count - begin);
        float made[PIECE];
#pragma omp simd
        for (i64 i = 0; i < size; i++) {
            float v = wide(in[i]);
            made[i] = v * normal(v, bell_of(v));
        }
        narrow_all(made, y + begin, size);
    }
}

/* y = gelu(x) again; g, the gradient of y, becomes that of x. */
void gelu_back(const number *x, number *g, number *y, i64 count, int threads)
{
#pragma omp parallel for num_threads(threads) if (parallel : SHARED(count)) schedule(static)
    for (i64 begin = 0; begin < count; begin += PIECE) {
        const number *in = x + begin, *gradient = g + begin;
        i64 size = least(PIECE, count - begin);
        float made[PIECE], back[PIECE];
#pragma omp simd
        for (i64 i = 0; i < size; i++) {
            float v = wide(in[i]), bell = bell_of(v), below = normal(v, bell);
            made[i] = v * below;
            back[i] = wide(gradient[i]) * (below + v * bell * 0.39894228f);
        }
        narrow_all(made, y + begin, size);
        narrow_all(back, g + begin, size);
    }
}

static inline float above_zero(float x) { return x < 0.0f ? 0.0f : x; }

/* y = max(x, 0)^2. */
void relu2(const number *x, number *y, i64 count, int threads)
{
#pragma omp parallel for num_threads(threads) if (parallel : SHARED(count)) schedule(static)
    for (i64 begin = 0; begin < count; begin += PIECE) {
        const number *in = x + begin;
        i64 size = least(PIECE, count - begin);
        float made[PIECE];
#pragma omp simd
        for (i64 i = 0; i < size; i++)
            made[i] = above_zero(wide(in[i])) * above_zero(wide(in[i]));
        narrow_all(made, y + begin, size);
    }
}

/* y = max(x, 0)^2 again; g, the gradient of y, becomes that of x. */
void relu2_back(const number *x, number *g, number *y, i64 count, int threads)
{
#pragma omp parallel for num_threads(threads) if (parallel : SHARED(count)) schedule(static)
    for (i64 begin = 0; begin < count; begin += PIECE) {
        const number *in = x + begin, *gradient = g + begin;
        i64 size = least(PIECE, count - begin);
        float made[PIECE], back[PIECE];
#pragma omp simd
        for (i64 i = 0; i < size; i++) {
            float above = above_zero(wide(in[i]));
            made[i] = above * above;
            back[i] = wide(gradient[i]) * 2.0f * above;
        }
        narrow_all(made, y + begin, size);
        narrow_all(back, g + begin, size);
    }
}

/* y = x * factor, or 0 for `dropped` of 65,536 fates; y may be x. */
void drop(const number *x, number *y, i64 seed, i64 dropped, float factor, i64 count, int threads)
{
    keys of = keys_of(seed);
    uint32_t below = (uint32_t)dropped;
#pragma omp parallel for simd num_threads(threads) if (parallel : SHARED(count)) schedule(static)
    for (i64 i = 0; i < count; i++)
        y[i] = fate((uint32_t)i, of) < below ? 0 : narrow(wide(x[i]) * factor);
}

/* The same for the residual stream. */
void drop_stream(const float *x, float *y, i64 seed, i64 dropped, float factor, i64 count, int threads)
{
    keys of = keys_of(seed);
    uint32_t below = (uint32_t)dropped;
#pragma omp parallel for simd num_threads(threads) if (parallel : SHARED(count)) schedule(static)
    for (i64 i = 0; i < count; i++)
        y[i] = fate((uint32_t)i, of) < below ? 0.0f : x[i] * factor;
}

/* sum = x + branch. */
void add(const float *x, const number *branch, float *sum, i64 count, int threads)
{
#pragma omp parallel for simd num_threads(threads) if (parallel : SHARED(count)) schedule(static)
    for (i64 i = 0; i < count; i++)
        sum[i] = x[i] + wide(branch[i]);
}

/* Rows that a norm takes in passes of their own, because one alone would have the CPU wait for each of its
 * sums. */
enum { TOGETHER = 8 };

/* Means of rows [count, C], and reciprocal deviations; without means, an RMS norm, these are of the numbers
 * themselves. */
static inline void find_statistics(const float *x, float *means, float *inverses, i64 count, i64 C,
                                   int centered, float epsilon)
{
    for (i64 r = 0; r < count; r++) {
        const float *in = x + r * C;
        float sum = 0.0f;
        if (centered) {
#pragma omp simd reduction(+ : sum)
            for (i64 c = 0; c < C; c++)
                sum += in[c];
        }
        means[r] = sum / (float)C;
    }
    for (i64 r = 0; r < count; r++) {
        const float *in = x + r * C;
        float mean = means[r], square = 0.0f;
#pragma omp simd reduction(+ : square)
        for (i64 c = 0; c < C; c++)
            square += (in[c] - mean) * (in[c] - mean);
        inverses[r] = square;
    }
    for (i64 r = 0; r < count; r++)
        inverses[r] = 1.0f / sqrtf(inverses[r] / (float)C + epsilon);
}

/* y = norm(x), or with a branch sum = x + branch and y = norm(sum): a layer norm with weight and perhaps
 * bias, or without a weight an RMS norm. [R, C]; statistics [2, R]: means, which an RMS norm leaves at 0, and
 * reciprocal deviations. */
void norm(const float *x, const number *branch, const float *weight, const float *bias, float *sum, number *y,
          float *statistics, i64 R, i64 C, float epsilon, int threads)
{
#pragma omp parallel for num_threads(threads) if (parallel : SHARED(R * C)) schedule(static)
    for (i64 first = 0; first < R; first += TOGETHER) {
        i64 count = least(TOGETHER, R - first);
        const float *in = (branch ? sum : x) + first * C;
        if (branch) {
            const float *before = x + first * C;
            const number *added = branch + first * C;
            float *to = sum + first * C;
#pragma omp simd
            for (i64 i = 0; i < count * C; i++)
                to[i] = before[i] + wide(added[i]);
        }
        find_statistics(in, statistics + first, statistics + R + first, count, C, weight != NULL, epsilon);
        for (i64 r = 0; r < count; r++, in += C) {
            number *out = y + (first + r) * C;
            float mean = statistics[first + r], inverse = statistics[R + first + r], made[C];
            if (!weight) {
#pragma omp simd
                for (i64 c = 0; c < C; c++)
                    made[c] = in[c] * inverse;
            } else if (!bias) {
#pragma omp simd
                for (i64 c = 0; c < C; c++)
                    made[c] = (in[c] - mean) * inverse * weight[c];
            } else {
#pragma omp simd
                for (i64 c = 0; c < C; c++)
                    made[c] = (in[c] - mean) * inverse * weight[c] + bias[c];
            }
            narrow_all(made, out, C);
        }
    }
}

/* dx = residual's gradient (unless null) + the gradient through the norm of x; dbranch the same in numbers.
 * dweight and dbias [C]; sums [threads, 2, C] is room for each thread's own. Null where there is none. */
void norm_back(const float *residual, const number *dy, const float *x, const float *weight,
               const float *statistics, float *dx, number *dbranch, float *dweight, float *dbias, float *sums,
               i64 R, i64 C, int threads)
{
#pragma omp parallel num_threads(threads) if (parallel : SHARED(R * C))
    {
        i64 me = omp_get_thread_num(), all = omp_get_num_threads();
        float *own = sums + me * 2 * C;
        memset(own, 0, 2 * (size_t)C * sizeof(float));
        for (i64 r = R * me / all; r < R * (me + 1) / all; r++) {
            const float *in = x + r * C, mean = statistics[r], inverse = statistics[R + r];
            const number *g = dy + r * C;
            float *out = dx + r * C, along = 0.0f, total = 0.0f;
            if (weight) {
#pragma omp simd reduction(+ : total, along)
                for (i64 c = 0; c < C; c++) {
                    float normed = (in[c] - mean) * inverse, gradient = wide(g[c]);
                    own[c] += gradient * normed;
                    own[C + c] += gradient;
                    total += gradient * weight[c];
                    along += gradient * weight[c] * normed;
                }
                total /= (float)C;
                along /= (float)C;
#pragma omp simd
                for (i64 c = 0; c < C; c++)
                    out[c] = inverse * (wide(g[c]) * weight[c] - total - (in[c] - mean) * inverse * along);
            } else {
#pragma omp simd reduction(+ : along)
                for (i64 c = 0; c < C; c++)
                    along += wide(g[c]) * in[c] * inverse;
                along /= (float)C;
#pragma omp simd
                for (i64 c = 0; c < C; c++)
                    out[c] = inverse * (wide(g[c]) - in[c] * inverse * along);
            }
            if (residual) {
                const float *passed = residual + r * C;
#pragma omp simd
                for (i64 c = 0; c < C; c++)
                    out[c] += passed[c];
            }
            if (dbranch)
                narrow_all(out, dbranch + r * C, C);
        }
#pragma omp barrier
#pragma omp single
        for (i64 t = 0; weight && t < all; t++)
            for (i64 c = 0; c < C; c++) {
                dweight[c] = (t ? dweight[c] : 0.0f) + sums[t * 2 * C + c];
                if (dbias)
                    dbias[c] = (t ? dbias[c] : 0.0f) + sums[t * 2 * C + C + c];
            }
    }
}

/* sums [C] of the rows of x [R, C]. */
void sum_rows(const number *x, float *sums, i64 R, i64 C, int threads)
{
    enum { COLUMNS = 64 };
#pragma omp parallel for num_threads(threads) if (parallel : SHARED(R * C)) schedule(static)
    for (i64 begin = 0; begin < C; begin += COLUMNS) {
        i64 count = least(COLUMNS, C - begin);
        float own[COLUMNS] = {0.0f};
        for (i64 r = 0; r < R; r++) {
            const number *row = x + r * C + begin;
#pragma omp simd
            for (i64 c = 0; c < count; c++)
                own[c] += wide(row[c]);
        }
        memcpy(sums + begin, own, (size_t)count * sizeof(float));
    }
}

/* losses [R] of targets [R] in nats under logits [R, V]; these become, if asked, share * (softmax - one at
 * the target): the gradient of the sum of losses times share. Rows begin `row` elements apart, and what is
 * left of them becomes 0. */
void cross_entropy(number *logits, const i64 *targets, float *losses, i64 R, i64 V, i64 row, int gradient,
                   float share, int threads)
{
#pragma omp parallel for num_threads(threads) if (parallel : SHARED(R * V)) schedule(static)
    for (i64 r = 0; r < R; r++) {
        number *l = logits + r * row;
        memset(l + V, 0, (size_t)(row - V) * sizeof(number));
        if (targets[r] < 0 || targets[r] >= V) {
            losses[r] = NAN; /* no such token: the step's loss tells */
            continue;
        }
        float at = wide(l[targets[r]]), largest = -INFINITY, sum = 0.0f;
#pragma omp simd reduction(max : largest)
        for (i64 v = 0; v < V; v++)
            largest = wide(l[v]) > largest ? wide(l[v]) : largest;
#pragma omp simd reduction(+ : sum)
        for (i64 v = 0; v < V; v++)
            sum += exponential(wide(l[v]) - largest);
        losses[r] = logf(sum) + largest - at;
        if (!gradient)
            continue;
        float each = share / sum, own = exponential(at - largest) * each - share;
        for (i64 begin = 0; begin < V; begin += PIECE) {
            i64 size = least(PIECE, V - begin);
            float made[PIECE];
#pragma omp simd
            for (i64 v = 0; v < size; v++)
                made[v] = exponential(wide(l[begin + v]) - largest) * each;
            narrow_all(made, l + begin, size);
        }
        l[targets[r]] = narrow(own);
    }
}
