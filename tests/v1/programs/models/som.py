"""A self-organizing map with its training by assignments, on colours."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


class SOM:
    _trained = False

    def __init__(self, m, n, dim, n_iterations=100, alpha=None, sigma=None):
        self._m, self._n = m, n
        alpha = 0.3 if alpha is None else float(alpha)
        sigma = max(m, n) / 2.0 if sigma is None else float(sigma)
        self._n_iterations = abs(int(n_iterations))
        self._graph = tf.Graph()
        with self._graph.as_default():
            self._weightage_vects = tf.Variable(tf.random_normal([m * n, dim], seed=4))
            self._location_vects = tf.constant(np.array(list(self._neuron_locations(m, n))))
            self._vect_input = tf.placeholder("float", [dim])
            self._iter_input = tf.placeholder("float")
            bmu_index = tf.argmin(
                tf.sqrt(
                    tf.reduce_sum(
                        tf.pow(
                            tf.subtract(self._weightage_vects, tf.stack([self._vect_input for i in range(m * n)])), 2
                        ),
                        1,
                    )
                ),
                0,
            )
            slice_input = tf.pad(tf.reshape(bmu_index, [1]), np.array([[0, 1]]))
            bmu_loc = tf.reshape(
                tf.slice(self._location_vects, slice_input, tf.constant(np.array([1, 2]), dtype=tf.int64)), [2]
            )
            learning_rate_op = tf.subtract(1.0, tf.div(self._iter_input, self._n_iterations))
            _alpha_op = tf.multiply(alpha, learning_rate_op)
            _sigma_op = tf.multiply(sigma, learning_rate_op)
            bmu_distance_squares = tf.reduce_sum(
                tf.pow(tf.subtract(self._location_vects, tf.stack([bmu_loc for i in range(m * n)])), 2), 1
            )
            neighbourhood_func = tf.exp(
                tf.negative(tf.div(tf.cast(bmu_distance_squares, "float32"), tf.pow(_sigma_op, 2)))
            )
            learning_rate_op = tf.multiply(_alpha_op, neighbourhood_func)
            learning_rate_multiplier = tf.stack(
                [tf.tile(tf.slice(learning_rate_op, np.array([i]), np.array([1])), [dim]) for i in range(m * n)]
            )
            weightage_delta = tf.multiply(
                learning_rate_multiplier,
                tf.subtract(tf.stack([self._vect_input for i in range(m * n)]), self._weightage_vects),
            )
            new_weightages_op = tf.add(self._weightage_vects, weightage_delta)
            self._training_op = tf.assign(self._weightage_vects, new_weightages_op)
            self._sess = tf.Session()
            init_op = tf.initialize_all_variables()
            self._sess.run(init_op)

    def _neuron_locations(self, m, n):
        for i in range(m):
            for j in range(n):
                yield np.array([i, j])

    def train(self, input_vects):
        for iter_no in range(self._n_iterations):
            for input_vect in input_vects:
                self._sess.run(self._training_op, feed_dict={self._vect_input: input_vect, self._iter_input: iter_no})
        self._weightages = list(self._sess.run(self._weightage_vects))
        self._locations = list(self._sess.run(self._location_vects))
        self._trained = True

    def map_vects(self, input_vects):
        to_return = []
        for vect in input_vects:
            min_index = min(
                list(range(len(self._weightages))), key=lambda x: np.linalg.norm(vect - self._weightages[x])
            )
            to_return.append(self._locations[min_index])
        return to_return


colors = np.array(
    [[0.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.5], [0.125, 0.529, 1.0], [0.33, 0.4, 0.67], [0.6, 0.5, 1.0],
     [0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]
)  # fmt: skip
som = SOM(5, 6, 3, 20)
som.train(colors)
print([tuple(int(v) for v in p) for p in som.map_vects(colors)])
print(np.round(np.array(som._weightages)[:4], 3))
