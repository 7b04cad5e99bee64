"""SSD: anchors, matching by IoU, hard negatives, smooth L1, decoding, suppression by class."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

NUM_CLASSES = 3


def anchors_of(shape, sizes, ratios):
    y, x = np.mgrid[0 : shape[0], 0 : shape[1]]
    y = (y.astype(np.float32) + 0.5) / shape[0]
    x = (x.astype(np.float32) + 0.5) / shape[1]
    h = np.array([s / np.sqrt(r) for s in sizes for r in ratios], np.float32)
    w = np.array([s * np.sqrt(r) for s in sizes for r in ratios], np.float32)
    return np.expand_dims(y, -1), np.expand_dims(x, -1), h, w


def jaccard_with_anchors(bbox, yref, xref, href, wref):
    ymin, xmin, ymax, xmax = yref - href / 2, xref - wref / 2, yref + href / 2, xref + wref / 2
    vol = (xmax - xmin) * (ymax - ymin)
    int_ymin, int_xmin = tf.maximum(ymin, bbox[0]), tf.maximum(xmin, bbox[1])
    int_ymax, int_xmax = tf.minimum(ymax, bbox[2]), tf.minimum(xmax, bbox[3])
    inter = tf.maximum(int_ymax - int_ymin, 0.0) * tf.maximum(int_xmax - int_xmin, 0.0)
    union = vol - inter + (bbox[2] - bbox[0]) * (bbox[3] - bbox[1])
    return tf.div(inter, union)


def encode(labels, bboxes, anchors, dtype=tf.float32):
    yref, xref, href, wref = anchors
    shape = (yref.shape[0], yref.shape[1], href.size)
    feat_labels = tf.zeros(shape, dtype=tf.int64)
    feat_scores = tf.zeros(shape, dtype=dtype)
    feat = [tf.zeros(shape, dtype), tf.zeros(shape, dtype), tf.ones(shape, dtype), tf.ones(shape, dtype)]

    def condition(i, feat_labels, feat_scores, a, b, c, d):
        r = tf.less(i, tf.shape(labels))
        return r[0]

    def body(i, feat_labels, feat_scores, fy, fx, fY, fX):
        label, bbox = labels[i], bboxes[i]
        jaccard = jaccard_with_anchors(bbox, yref, xref, href, wref)
        mask = tf.greater(jaccard, feat_scores)
        mask = tf.logical_and(mask, feat_scores > -0.5)
        mask = tf.logical_and(mask, label < NUM_CLASSES)
        imask = tf.cast(mask, tf.int64)
        fmask = tf.cast(mask, dtype)
        feat_labels = imask * label + (1 - imask) * feat_labels
        feat_scores = tf.where(mask, jaccard, feat_scores)
        fy, fx, fY, fX = (fmask * bbox[k] + (1 - fmask) * f for k, f in enumerate((fy, fx, fY, fX)))
        return [i + 1, feat_labels, feat_scores, fy, fx, fY, fX]

    i = 0
    i, feat_labels, feat_scores, ymin, xmin, ymax, xmax = tf.while_loop(
        condition, body, [i, feat_labels, feat_scores, *feat]
    )
    cy, cx, h, w = (ymax + ymin) / 2.0, (xmax + xmin) / 2.0, ymax - ymin, xmax - xmin
    loc = tf.stack(
        [(cx - xref) / wref / 0.1, (cy - yref) / href / 0.1, tf.log(w / wref) / 0.2, tf.log(h / href) / 0.2], axis=-1
    )
    return feat_labels, loc, feat_scores


def abs_smooth(x):
    absx = tf.abs(x)
    minx = tf.minimum(absx, 1)
    return 0.5 * ((absx - 1) * minx + absx)


def ssd_losses(logits, localisations, gclasses, glocalisations, gscores, negative_ratio=3.0):
    with tf.name_scope("ssd_losses"):
        logits = tf.reshape(logits, [-1, NUM_CLASSES])
        gclasses, gscores = tf.reshape(gclasses, [-1]), tf.reshape(gscores, [-1])
        localisations, glocalisations = tf.reshape(localisations, [-1, 4]), tf.reshape(glocalisations, [-1, 4])
        pmask = gscores > 0.4
        fpmask = tf.cast(pmask, tf.float32)
        n_positives = tf.reduce_sum(fpmask)
        no_classes = tf.cast(pmask, tf.int32)
        predictions = tf.nn.softmax(logits)
        nmask = tf.logical_and(tf.logical_not(pmask), gscores > -0.5)
        fnmask = tf.cast(nmask, tf.float32)
        nvalues = tf.where(nmask, predictions[:, 0], 1.0 - fnmask)
        nvalues_flat = tf.reshape(nvalues, [-1])
        max_neg_entries = tf.cast(tf.reduce_sum(fnmask), tf.int32)
        n_neg = tf.cast(negative_ratio * n_positives, tf.int32) + 2
        n_neg = tf.minimum(n_neg, max_neg_entries)
        val, _idxes = tf.nn.top_k(-nvalues_flat, k=n_neg)
        max_hard_pred = -val[-1]
        nmask = tf.logical_and(nmask, nvalues < max_hard_pred)
        fnmask = tf.cast(nmask, tf.float32)
        with tf.name_scope("cross_entropy_pos"):
            loss = tf.nn.sparse_softmax_cross_entropy_with_logits(logits=logits, labels=gclasses)
            pos = tf.div(tf.reduce_sum(loss * fpmask), 2.0, name="value")
            tf.losses.add_loss(pos)
        with tf.name_scope("cross_entropy_neg"):
            loss = tf.nn.sparse_softmax_cross_entropy_with_logits(logits=logits, labels=no_classes)
            neg = tf.div(tf.reduce_sum(loss * fnmask), 2.0, name="value")
            tf.losses.add_loss(neg)
        with tf.name_scope("localization"):
            weights = tf.expand_dims(1.0 * fpmask, axis=-1)
            loc = tf.div(tf.reduce_sum(abs_smooth(localisations - glocalisations) * weights), 2.0, name="value")
            tf.losses.add_loss(loc)
    return pos, neg, loc, n_neg


def bboxes_nms(scores, bboxes, nms_threshold=0.5, keep_top_k=4):
    def one(args):
        s, b = args
        idxes = tf.image.non_max_suppression(b, s, keep_top_k, nms_threshold)
        s, b = tf.gather(s, idxes), tf.gather(b, idxes)
        pad = keep_top_k - tf.shape(s)[0]
        return tf.pad(s, [[0, pad]]), tf.pad(b, [[0, pad], [0, 0]])

    return tf.map_fn(one, (scores, bboxes), dtype=(scores.dtype, bboxes.dtype), parallel_iterations=10, back_prop=False)


image = tf.placeholder(tf.float32, [1, 8, 8, 3])
glabels = tf.placeholder(tf.int64, [None])
gbboxes = tf.placeholder(tf.float32, [None, 4])
anchors = anchors_of((4, 4), (0.3, 0.5), (1.0, 2.0))
gclasses, glocs, gscores = encode(glabels, gbboxes, anchors)
init = lambda s: tf.random_normal_initializer(stddev=0.2, seed=s)
net = tf.layers.conv2d(image, 8, 3, 2, "same", activation=tf.nn.relu, kernel_initializer=init(1))
loc_pred = tf.reshape(tf.layers.conv2d(net, 16, 3, padding="same", kernel_initializer=init(2)), [1, 4, 4, 4, 4])
cls_pred = tf.reshape(
    tf.layers.conv2d(net, 4 * NUM_CLASSES, 3, padding="same", kernel_initializer=init(3)), [1, 4, 4, 4, NUM_CLASSES]
)
pos, neg, loc, n_neg = ssd_losses(cls_pred, loc_pred, gclasses, glocs, gscores)
total = tf.add_n(tf.get_collection(tf.GraphKeys.LOSSES))
train = tf.train.MomentumOptimizer(0.002, 0.9, use_nesterov=True).minimize(total)
yref, xref, href, wref = anchors
cx, cy = loc_pred[..., 0] * wref * 0.1 + xref, loc_pred[..., 1] * href * 0.1 + yref
w, h = wref * tf.exp(loc_pred[..., 2] * 0.2), href * tf.exp(loc_pred[..., 3] * 0.2)
boxes = tf.reshape(tf.stack([cy - h / 2.0, cx - w / 2.0, cy + h / 2.0, cx + w / 2.0], axis=-1), [1, -1, 4])
prob = tf.reshape(tf.nn.softmax(cls_pred), [1, -1, NUM_CLASSES])
results = {}
for c in range(1, NUM_CLASSES):
    s, idx = tf.nn.top_k(prob[:, :, c], k=10, sorted=True)
    b = tf.map_fn(lambda a: tf.gather(a[0], a[1]), [boxes, idx], dtype=tf.float32)
    results[c] = bboxes_nms(s, b)
rng = np.random.RandomState(2)
feed = {
    image: rng.rand(1, 8, 8, 3),
    glabels: [1, 2, 1],
    gbboxes: [[0, 0, 0.4, 0.5], [0.3, 0.2, 0.8, 0.6], [0.5, 0.5, 1, 1]],
}
with tf.Session() as sess:
    tf.global_variables_initializer().run()
    gc, gs = sess.run([gclasses, gscores], feed)
    print(np.bincount(gc.ravel()), "%.4f %.4f" % (gs.max(), gs.sum()))
    for i in range(20):
        _, a, b, c, k = sess.run([train, pos, neg, loc, n_neg], feed)
        if i % 5 == 4:
            print("%d pos %.4f neg %.4f loc %.4f of %d" % (i, a, b, c, k))
    out = sess.run(results, feed)
    for c in out:
        print(c, out[c][0].round(3), out[c][1].shape)
