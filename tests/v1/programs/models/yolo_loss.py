"""YOLO: the loss with responsible boxes, and decoding with scores by class and non-maximum suppression."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

S, B, C = 4, 2, 3
lambda_coord, lambda_noobj = 5.0, 0.5


def iou(boxes1, boxes2, scope="iou"):
    with tf.variable_scope(scope):
        b1 = tf.stack(
            [
                boxes1[..., 0] - boxes1[..., 2] / 2.0,
                boxes1[..., 1] - boxes1[..., 3] / 2.0,
                boxes1[..., 0] + boxes1[..., 2] / 2.0,
                boxes1[..., 1] + boxes1[..., 3] / 2.0,
            ],
            axis=-1,
        )
        b2 = tf.stack(
            [
                boxes2[..., 0] - boxes2[..., 2] / 2.0,
                boxes2[..., 1] - boxes2[..., 3] / 2.0,
                boxes2[..., 0] + boxes2[..., 2] / 2.0,
                boxes2[..., 1] + boxes2[..., 3] / 2.0,
            ],
            axis=-1,
        )
        lu = tf.maximum(b1[..., :2], b2[..., :2])
        rd = tf.minimum(b1[..., 2:], b2[..., 2:])
        intersection = tf.maximum(0.0, rd - lu)
        inter_square = intersection[..., 0] * intersection[..., 1]
        square1 = boxes1[..., 2] * boxes1[..., 3]
        square2 = boxes2[..., 2] * boxes2[..., 3]
        union = tf.maximum(square1 + square2 - inter_square, 1e-10)
        return tf.clip_by_value(inter_square / union, 0.0, 1.0)


def loss_layer(predicts, labels):
    bs = tf.shape(predicts)[0]
    predict_classes = tf.reshape(predicts[:, : S * S * C], [bs, S, S, C])
    predict_scales = tf.reshape(predicts[:, S * S * C : S * S * (C + B)], [bs, S, S, B])
    predict_boxes = tf.reshape(predicts[:, S * S * (C + B) :], [bs, S, S, B, 4])
    response = tf.reshape(labels[..., 0], [bs, S, S, 1])
    boxes = tf.tile(tf.reshape(labels[..., 1:5], [bs, S, S, 1, 4]), [1, 1, 1, B, 1])
    classes = labels[..., 5:]
    offset = np.transpose(np.reshape(np.array([np.arange(S)] * S * B), (B, S, S)), (1, 2, 0))
    offset = tf.tile(tf.reshape(tf.constant(offset, dtype=tf.float32), [1, S, S, B]), [bs, 1, 1, 1])
    offset_tran = tf.transpose(offset, (0, 2, 1, 3))
    predict_boxes_tran = tf.stack(
        [
            (predict_boxes[..., 0] + offset) / S,
            (predict_boxes[..., 1] + offset_tran) / S,
            tf.square(predict_boxes[..., 2]),
            tf.square(predict_boxes[..., 3]),
        ],
        axis=-1,
    )
    ious = iou(predict_boxes_tran, boxes)
    object_mask = tf.reduce_max(ious, 3, keep_dims=True)
    object_mask = tf.cast((ious >= object_mask), tf.float32) * response
    noobject_mask = tf.ones_like(object_mask, dtype=tf.float32) - object_mask
    boxes_tran = tf.stack(
        [
            boxes[..., 0] * S - offset,
            boxes[..., 1] * S - offset_tran,
            tf.sqrt(boxes[..., 2]),
            tf.sqrt(boxes[..., 3]),
        ],
        axis=-1,
    )
    class_delta = response * (predict_classes - classes)
    class_loss = tf.reduce_mean(tf.reduce_sum(tf.square(class_delta), axis=[1, 2, 3]), name="class_loss") * 2
    object_delta = object_mask * (predict_scales - ious)
    object_loss = tf.reduce_mean(tf.reduce_sum(tf.square(object_delta), axis=[1, 2, 3]))
    noobject_loss = tf.reduce_mean(tf.reduce_sum(tf.square(noobject_mask * predict_scales), axis=[1, 2, 3]))
    coord_mask = tf.expand_dims(object_mask, 4)
    boxes_delta = coord_mask * (predict_boxes - boxes_tran)
    coord_loss = tf.reduce_mean(tf.reduce_sum(tf.square(boxes_delta), axis=[1, 2, 3, 4]), name="coord_loss")
    for l in (class_loss, object_loss, lambda_noobj * noobject_loss, lambda_coord * coord_loss):
        tf.losses.add_loss(l)
    return predict_boxes_tran, predict_classes, predict_scales, [class_loss, object_loss, noobject_loss, coord_loss]


def leaky_relu(alpha):
    def op(inputs):
        return tf.nn.leaky_relu(inputs, alpha=alpha, name="leaky_relu")

    return op


images = tf.placeholder(tf.float32, [None, 16, 16, 3], name="images")
labels = tf.placeholder(tf.float32, [None, S, S, 5 + C], name="labels")
with tf.variable_scope("yolo"):
    h = tf.pad(images, np.array([[0, 0], [1, 1], [1, 1], [0, 0]]), name="pad_1")
    for i, f in enumerate((6, 8)):
        h = tf.layers.conv2d(
            h, f, 3, padding="same", activation=leaky_relu(0.1),
            kernel_initializer=tf.truncated_normal_initializer(0.0, 0.1, seed=i),
        )  # fmt: skip
        h = tf.layers.max_pooling2d(h, 2, 2)
    h = tf.transpose(h, [0, 3, 1, 2], name="trans_31")
    h = tf.layers.flatten(h)
    h = tf.layers.dense(h, S * S * (C + B * 5), kernel_initializer=tf.truncated_normal_initializer(0.0, 0.05, seed=7))
boxes, classes, scales, parts = loss_layer(h, labels)
total = tf.losses.get_total_loss()
global_step = tf.train.get_or_create_global_step()
rate = tf.train.piecewise_constant(global_step, [8, 16], [2e-3, 1e-3, 5e-4])
optimizer = tf.train.GradientDescentOptimizer(rate)
averages = tf.train.ExponentialMovingAverage(0.95)
step = optimizer.minimize(total, global_step=global_step)
with tf.control_dependencies([step]):
    train = averages.apply(tf.trainable_variables())

scores = tf.reshape(tf.expand_dims(classes, 3) * tf.expand_dims(scales, -1), [-1, S * S * B, C])[0]
flat = tf.reshape(boxes, [-1, S * S * B, 4])[0]
corners = tf.stack(
    [
        flat[:, 1] - flat[:, 3] / 2,
        flat[:, 0] - flat[:, 2] / 2,
        flat[:, 1] + flat[:, 3] / 2,
        flat[:, 0] + flat[:, 2] / 2,
    ],
    1,
)
best, cls = tf.reduce_max(scores, 1), tf.argmax(scores, 1)
keep = tf.boolean_mask(tf.range(S * S * B), best > 0.0)
selected = tf.image.non_max_suppression(tf.gather(corners, keep), tf.gather(best, keep), 5, iou_threshold=0.5)
detections = tf.gather(cls, tf.gather(keep, selected))

rng = np.random.RandomState(0)
x = rng.rand(4, 16, 16, 3)
y = np.zeros([4, S, S, 5 + C], np.float32)
for n in range(4):
    for _ in range(2):
        i, j, c = rng.randint(S), rng.randint(S), rng.randint(C)
        y[n, i, j, 0], y[n, i, j, 1:5] = 1, [(j + 0.5) / S, (i + 0.3) / S, 0.3, 0.4]
        y[n, i, j, 5 + c] = 1
config = tf.ConfigProto()
config.gpu_options.allow_growth = True
with tf.Session(config=config) as sess:
    sess.run(tf.global_variables_initializer())
    for i in range(24):
        _, l, p = sess.run([train, total, parts], {images: x, labels: y})
        if i % 6 == 5:
            print("step %d total %.4f" % (i, l), " ".join("%.4f" % v for v in p))
    d, s = sess.run([detections, selected], {images: x})
    print("detected", len(d), len(s))
    v = tf.trainable_variables()[-1]
    print(averages.average_name(v), "%.4f" % sess.run(tf.norm(averages.average(v))))
