"""Queues: between threads, and between steps."""

import threading

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

# several threads fill a queue that one step after the other empties
queue = tf.FIFOQueue(5, tf.int32, shapes=[], name="numbers")
value = tf.placeholder(tf.int32, [])
enqueue = queue.enqueue(value)
take = queue.dequeue()
size = queue.size()
close = queue.close()


def produce(sess, first, n):
    for k in range(n):
        sess.run(enqueue, {value: first + k})


with tf.Session() as sess:
    threads = [threading.Thread(target=produce, args=(sess, first, 10)) for first in (0, 100, 200)]
    for t in threads:
        t.start()
    got = [int(sess.run(take)) for _ in range(30)]
    for t in threads:
        t.join()
    print(sorted(got) == sorted([*range(10), *range(100, 110), *range(200, 210)]))
    print(all([x for x in got if x // 100 == k] == sorted(x for x in got if x // 100 == k) for k in range(3)))
    print("left", sess.run(size))
    for k in (1, 2, 3):
        sess.run(enqueue, {value: k})
    sess.run(close)
    print("rest", [int(sess.run(take)) for _ in range(3)], sess.run(queue.is_closed()))
    for name, op in (("dequeue", take), ("enqueue", enqueue)):
        try:
            sess.run(op, {value: 0})
        except (tf.errors.OutOfRangeError, tf.errors.CancelledError) as e:
            print(name, type(e).__name__)

# a thread that waits goes on when the queue is closed
with tf.Graph().as_default(), tf.Session() as sess:
    q = tf.FIFOQueue(2, [tf.float32])
    waiting, stop = q.dequeue(), q.close(cancel_pending_enqueues=True)
    seen = []

    def consume():
        try:
            while True:
                seen.append(float(sess.run(waiting)))
        except tf.errors.OutOfRangeError:
            seen.append("closed")

    t = threading.Thread(target=consume)
    t.start()
    sess.run(q.enqueue_many([[1.0, 2.0, 3.0]]))
    sess.run(stop)
    t.join()
    print(seen)

# batches of pairs
with tf.Graph().as_default(), tf.Session() as sess:
    q = tf.FIFOQueue(10, [tf.int32, tf.string], shapes=[[2], []], names=["point", "label"])
    sess.run(q.enqueue({"point": [1, 2], "label": "a"}))
    sess.run(q.enqueue_many({"point": [[3, 4], [5, 6], [7, 8]], "label": ["b", "c", "d"]}))
    batch = sess.run(q.dequeue_many(3))
    print(batch["point"].tolist(), batch["label"].tolist())
    sess.run(q.close())
    rest = sess.run(q.dequeue_up_to(3))
    print(rest["point"].tolist(), rest["label"].tolist())

# other kinds: padded, by priority, shuffled; one name, one queue
with tf.Graph().as_default(), tf.Session() as sess:
    padded = tf.PaddingFIFOQueue(5, [tf.int32], shapes=[[None]])
    for row in ([1], [2, 2], [3, 3, 3]):
        sess.run(padded.enqueue([row]))
    print(sess.run(padded.dequeue_many(3)).tolist())
    heap = tf.PriorityQueue(5, [tf.string], shapes=[[]])
    sess.run(heap.enqueue_many([np.array([3, 1, 2], np.int64), ["third", "first", "second"]]))
    print([sess.run(heap.dequeue())[1].decode() for _ in range(3)])
    mixed = tf.RandomShuffleQueue(10, 0, tf.int32, shapes=[[]], seed=1)
    sess.run(mixed.enqueue_many([list(range(6))]))
    print(sorted(sess.run(mixed.dequeue_many(6)).tolist()))
    one = tf.FIFOQueue(3, tf.int32, shared_name="shared", name="one")
    two = tf.FIFOQueue(3, tf.int32, shared_name="shared", name="two")
    sess.run(one.enqueue(42))
    print(sess.run(two.dequeue()))

# a queue in a loop: a sum of what comes
with tf.Graph().as_default(), tf.Session() as sess:
    q = tf.FIFOQueue(10, tf.int32, shapes=[])
    fill = q.enqueue_many([[1, 2, 3, 4]])
    with tf.control_dependencies([fill]):
        start = tf.constant(0)
    _, total = tf.while_loop(lambda i, s: i < 4, lambda i, s: (i + 1, s + q.dequeue()), [start, tf.constant(0)])
    print(sess.run(total), sess.run(q.size()))
