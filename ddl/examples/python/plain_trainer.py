"""Trains a network of two layers to tell three spirals apart: SGD with momentum in numpy."""

import sys

import numpy as np

EPOCHS, BATCH, RATE, HIDDEN = 30, 64, 0.05, 48


def spirals(count, seed):
    """Points on three spiral arms, and the arm of each point."""
    random = np.random.default_rng(seed)
    arms, radius = random.integers(0, 3, count), random.uniform(0.05, 1, count)
    angles = arms * 2 * np.pi / 3 + radius * 4 + random.normal(0, 0.05, count)
    points = np.stack([radius * np.cos(angles), radius * np.sin(angles)], axis=1)
    return points.astype("float32"), arms


class Network:
    def __init__(self, seed):
        random = np.random.default_rng(seed)
        shapes = {"w1": (2, HIDDEN), "b1": (HIDDEN,), "w2": (HIDDEN, 3), "b2": (3,)}
        self.parameters = {name: random.normal(0, 0.7, shape).astype("float32") for name, shape in shapes.items()}
        self.gradients = {name: np.zeros(shape, "float32") for name, shape in shapes.items()}

    def forward(self, points):
        hidden = np.maximum(0, points @ self.parameters["w1"] + self.parameters["b1"])
        return hidden, hidden @ self.parameters["w2"] + self.parameters["b2"]

    def backward(self, points, labels, ready):
        """Sums the gradients over these points; calls `ready(name)` as soon as a sum is final."""
        hidden, logits = self.forward(points)
        errors = np.exp(logits - logits.max(axis=1, keepdims=True))
        errors /= errors.sum(axis=1, keepdims=True)
        errors[np.arange(len(labels)), labels] -= 1
        self.gradients["w2"][:] = hidden.T @ errors
        ready("w2")
        self.gradients["b2"][:] = errors.sum(axis=0)
        ready("b2")
        below = (errors @ self.parameters["w2"].T) * (hidden > 0)
        self.gradients["w1"][:] = points.T @ below
        ready("w1")
        self.gradients["b1"][:] = below.sum(axis=0)
        ready("b1")

    def accuracy(self, points, labels):
        return float((self.forward(points)[1].argmax(axis=1) == labels).mean())


def batches(count, seed):
    """Yields the indices of each batch, in a new random order in each epoch."""
    random = np.random.default_rng(seed)
    while True:
        order = random.permutation(count)
        for begin in range(0, count, BATCH):
            yield order[begin:begin + BATCH]


def train(seed):
    points, labels = spirals(3000, seed=1)
    test_points, test_labels = spirals(1000, seed=2)
    network = Network(seed)
    sampler, steps_per_epoch = batches(len(points), seed=3), -(-len(points) // BATCH)
    moments = {name: np.zeros_like(values) for name, values in network.parameters.items()}
    for epoch in range(EPOCHS):
        for _ in range(steps_per_epoch):
            samples = next(sampler)
            network.backward(points[samples], labels[samples], ready=lambda name: None)
            for name, gradient in network.gradients.items():
                moments[name] = 0.9 * moments[name] + gradient / len(samples)
                network.parameters[name] -= RATE * moments[name]
        print(f"epoch {epoch + 1}: {network.accuracy(test_points, test_labels):.3f} right")


train(seed=int(sys.argv[1]) if len(sys.argv) > 1 else 5)
