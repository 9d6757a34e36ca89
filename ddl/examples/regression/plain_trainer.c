/* Fits a plane to noisy points, which are made from a seed, by SGD in mini-batches.
 *   trainer [CHECKPOINT [SEED_OF_THE_FIRST_WEIGHTS]] */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FEATURES = 20, PARAMETERS = FEATURES + 1, POINTS = 4096, BATCH = 64, STEPS = 1024 };

struct point {
  double x[FEATURES];
  double y;
};

static const char usage[] =
  "usage: trainer [CHECKPOINT [SEED]]\n"
  "Fits a plane to noisy points and writes its parameters to CHECKPOINT (regression.txt). SEED is that of the\n"
  "first weights (1).\n";

static int fail(const char* message) {
  fprintf(stderr, "%s\n", message);
  return 1;
}

/* Draws a number from -1 to 1 (SplitMix64, Steele et al. 2014). */
static double draw(uint64_t* state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15U);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return (double)((z ^ (z >> 31)) >> 11) / (double)(1ULL << 52) - 1;
}

/* The true weights are 1, 2, ... and the true offset is -1. */
static void make_points(struct point* points, uint64_t seed) {
  int i, f;
  for (i = 0; i < POINTS; ++i) {
    points[i].y = -1 + 0.1 * draw(&seed);
    for (f = 0; f < FEATURES; ++f) {
      points[i].x[f] = draw(&seed);
      points[i].y += (f + 1) * points[i].x[f];
    }
  }
}

static double error_of(const struct point* point, const double* parameters) {
  double error = parameters[FEATURES] - point->y;
  int f;
  for (f = 0; f < FEATURES; ++f) error += parameters[f] * point->x[f];
  return error;
}

static double mean_square(const struct point* points, const double* parameters) {
  double sum = 0;
  int i;
  for (i = 0; i < POINTS; ++i) {
    const double error = error_of(&points[i], parameters);
    sum += error * error;
  }
  return sum / POINTS;
}

static void add_gradient(const struct point* point, const double* parameters, double* gradient) {
  const double error = error_of(point, parameters);
  int f;
  for (f = 0; f < FEATURES; ++f) gradient[f] += error * point->x[f];
  gradient[FEATURES] += error;
}

static int save(const char* path, const double* parameters) {
  FILE* file = fopen(path, "w");
  int i, written = 0;
  if (file == NULL) return -1;
  for (i = 0; i < PARAMETERS; ++i) written += fprintf(file, "%.17g\n", parameters[i]) > 0;
  return fclose(file) == 0 && written == PARAMETERS ? 0 : -1;
}

int main(int count, char** arguments) {
  static struct point points[POINTS];
  const char* path = count > 1 ? arguments[1] : "regression.txt";
  const int asks = strcmp(path, "--help") == 0;
  char none = '\0', *rest = &none;
  uint64_t seed = count > 2 ? strtoull(arguments[2], &rest, 10) : 1;
  const double rate = 0.03;
  double parameters[PARAMETERS], gradient[PARAMETERS];
  int step, i;
  if (path[0] == '-' || *rest != '\0' || count > 3) {
    fputs(usage, asks ? stdout : stderr);
    return asks ? 0 : 2;
  }
  make_points(points, 7);
  for (i = 0; i < PARAMETERS; ++i) parameters[i] = draw(&seed);
  for (step = 1; step <= STEPS; ++step) {
    memset(gradient, 0, sizeof gradient);
    for (i = 0; i < BATCH; ++i) {
      add_gradient(&points[(step * BATCH + i) % POINTS], parameters, gradient);
    }
    for (i = 0; i < PARAMETERS; ++i) parameters[i] -= rate / BATCH * gradient[i];
    if (step % 256 == 0) {
      printf("step %4d: mean square %.6f\n", step, mean_square(points, parameters));
    }
  }
  if (save(path, parameters) != 0) return fail("the checkpoint could not be written");
  return 0;
}
