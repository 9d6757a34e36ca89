/* Trains a perceptron of three layers to tell the arms of three spirals apart: mini-batches, SGD with momentum.
 * As in GPT-2 trainers in C, one block of memory holds all parameters, and another all gradients.
 *   trainer [CHECKPOINT [SEED_OF_THE_FIRST_WEIGHTS]] */
#include <ddl/ddl.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARMS = 3, WIDTH = 32, LAYERS = 3, POINTS = 3072, TEST_POINTS = 1536, BATCH = 64, EPOCHS = 40 };

static const int widths[LAYERS + 1] = {2, WIDTH, WIDTH, ARMS};

static const char usage[] =
  "usage: trainer [CHECKPOINT [SEED]]\n"
  "Trains a perceptron to tell the arms of three spirals apart and writes its parameters to CHECKPOINT\n"
  "(spirals.txt). SEED is that of the first weights (1).\n";

struct point {
  float x[2];
  int arm;
};

struct network {
  int size;                   /* of all parameters */
  float* parameters;          /* one block: each layer's weights, then its biases */
  float* gradients;           /* another, alike */
  float* velocities;          /* another, alike */
  float* weights[LAYERS];     /* in `parameters` */
  float* gradient[LAYERS];    /* in `gradients` */
  float* units[LAYERS + 1];   /* of a mini-batch; the last are probabilities */
  float* errors[LAYERS + 1];  /* the loss's derivatives by units before their activation */
  ddl_parameter layers[LAYERS];
  ddl_reducer* reducer;
};

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

static void make_points(struct point* points, int count, uint64_t seed) {
  for (int i = 0; i < count; ++i) {
    const double radius = 0.525 + 0.475 * draw(&seed);
    const double angle = 6.2831853 * (radius + i % ARMS / (double)ARMS) + 0.2 * draw(&seed);
    points[i] = (struct point){{(float)(radius * sin(angle)), (float)(radius * cos(angle))}, i % ARMS};
  }
}

static int layer_size(int layer) { return (widths[layer] + 1) * widths[layer + 1]; }

static float* allocate(int count) {
  float* memory = calloc((size_t)count, sizeof *memory);
  if (memory == NULL) exit(fail("out of memory"));
  return memory;
}

static void build(struct network* net, uint64_t seed) {
  int offset = 0;
  for (int l = 0; l < LAYERS; ++l) net->size += layer_size(l);
  net->parameters = allocate(net->size);
  net->gradients = allocate(net->size);
  net->velocities = allocate(net->size);
  for (int l = 0; l <= LAYERS; ++l) {
    net->units[l] = allocate(BATCH * widths[l]);
    net->errors[l] = allocate(BATCH * widths[l]);
  }
  for (int l = 0; l < LAYERS; offset += layer_size(l++)) {
    net->weights[l] = net->parameters + offset;
    net->gradient[l] = net->gradients + offset;
    net->layers[l] = (ddl_parameter){NULL, net->weights[l], layer_size(l), DDL_F32, .gradient = net->gradient[l]};
    for (int i = 0; i < widths[l] * widths[l + 1]; ++i) {
      net->weights[l][i] = (float)(draw(&seed) * sqrt(3.0 / widths[l]));
    }
  }
}

static void softmax(float* scores) {
  float sum = 0;
  for (int a = 0; a < ARMS; ++a) sum += scores[a] = expf(scores[a]);
  for (int a = 0; a < ARMS; ++a) scores[a] /= sum;
}

static void forward(struct network* net, const struct point* points, int count) {
  for (int p = 0; p < count; ++p) memcpy(&net->units[0][2 * p], points[p].x, sizeof points[p].x);
  for (int l = 0; l < LAYERS; ++l) {
    const int inputs = widths[l], outputs = widths[l + 1];
    const float* biases = net->weights[l] + inputs * outputs;
    for (int p = 0; p < count; ++p) {
      const float* in = &net->units[l][p * inputs];
      float* out = &net->units[l + 1][p * outputs];
      for (int o = 0; o < outputs; ++o) {
        float sum = biases[o];
        for (int i = 0; i < inputs; ++i) sum += net->weights[l][o * inputs + i] * in[i];
        out[o] = l + 1 < LAYERS ? tanhf(sum) : sum;
      }
      if (l + 1 == LAYERS) softmax(out);
    }
  }
}

/* Adds the gradients of the mean loss of the points that `forward` had, from the last layer to the first. */
static void backward(struct network* net, const struct point* points, int count) {
  for (int i = 0; i < count * ARMS; ++i) {
    net->errors[LAYERS][i] = (net->units[LAYERS][i] - (points[i / ARMS].arm == i % ARMS)) / (float)count;
  }
  for (int l = LAYERS - 1; l >= 0; --l) {
    const int inputs = widths[l], outputs = widths[l + 1];
    memset(net->errors[l], 0, (size_t)(count * inputs) * sizeof(float));
    for (int p = 0; p < count; ++p) {
      const float *in = &net->units[l][p * inputs], *error = &net->errors[l + 1][p * outputs];
      float* below = &net->errors[l][p * inputs];
      for (int o = 0; o < outputs; ++o) {
        for (int i = 0; i < inputs; ++i) {
          net->gradient[l][o * inputs + i] += error[o] * in[i];
          below[i] += error[o] * net->weights[l][o * inputs + i];
        }
        net->gradient[l][inputs * outputs + o] += error[o];
      }
      for (int i = 0; i < inputs; ++i) below[i] *= 1 - in[i] * in[i];
    }
    ddl_reducer_ready(net->reducer, l);
  }
}

static void update(struct network* net, float rate) {
  for (int i = 0; i < net->size; ++i) {
    net->velocities[i] = 0.9F * net->velocities[i] + net->gradients[i];
    net->parameters[i] -= rate * net->velocities[i];
  }
}

static double accuracy(struct network* net, const struct point* points, int count) {
  int right = 0;
  for (int first = 0; first < count; first += BATCH) {
    forward(net, points + first, BATCH);
    for (int p = 0; p < BATCH; ++p) {
      const float* found = &net->units[LAYERS][p * ARMS];
      const int arm = points[first + p].arm;
      right += found[arm] > found[(arm + 1) % ARMS] && found[arm] > found[(arm + 2) % ARMS];
    }
  }
  return (double)right / count;
}

static int save(const char* path, const struct network* net) {
  FILE* file = fopen(path, "w");
  int written = 0;
  if (file == NULL) return -1;
  for (int i = 0; i < net->size; ++i) written += fprintf(file, "%.9g\n", net->parameters[i]) > 0;
  return fclose(file) == 0 && written == net->size ? 0 : -1;
}

int main(int count, char** arguments) {
  static struct point points[POINTS], test_points[TEST_POINTS];
  static struct network net;
  const char* path = count > 1 ? arguments[1] : "spirals.txt";
  const int asks = strcmp(path, "--help") == 0;
  char none = '\0', *rest = &none;
  uint64_t seed = count > 2 ? strtoull(arguments[2], &rest, 10) : 1;
  if (path[0] == '-' || *rest != '\0' || count > 3) {
    fputs(usage, asks ? stdout : stderr);
    return asks ? 0 : 2;
  }
  if (ddl_init(NULL) != DDL_OK) return fail(ddl_error_message());
  make_points(points, POINTS, 7);
  make_points(test_points, TEST_POINTS, 8);
  build(&net, seed);
  const ddl_reducer_options options = {.gradients = DDL_GRADIENT_MEANS};
  if (ddl_broadcast_parameters(net.layers, LAYERS, 0) != DDL_OK) return fail(ddl_error_message());
  if (ddl_reducer_create(net.layers, LAYERS, &options, &net.reducer) != DDL_OK) return fail(ddl_error_message());
  for (int epoch = 1; epoch <= EPOCHS; ++epoch) {
    for (int first = 0; first < POINTS; first += BATCH) {
      const int begin = BATCH * ddl_rank() / ddl_size(), size = BATCH * (ddl_rank() + 1) / ddl_size() - begin;
      const struct point* batch = points + first + begin;
      memset(net.gradients, 0, (size_t)net.size * sizeof(float));
      forward(&net, batch, size);
      ddl_reducer_begin(net.reducer, size);
      backward(&net, batch, size);
      if (ddl_reducer_wait(net.reducer, DDL_GIVEN, NULL) != DDL_OK) return fail(ddl_error_message());
      update(&net, 0.05F);
    }
    if (ddl_rank() != 0) continue;
    printf("epoch %2d: accuracy on test points %.2f%%\n", epoch, 100 * accuracy(&net, test_points, TEST_POINTS));
  }
  if (ddl_rank() == 0 && save(path, &net) != 0) return fail("the checkpoint could not be written");
  ddl_finalize();
  return 0;
}
