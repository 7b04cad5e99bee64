"""A queue that threads fill, a coordinator that stops them."""

import tensorflow.compat.v1 as tf

numbers = tf.FIFOQueue(10, "float", shapes=[[]])
fill = numbers.enqueue_many(([1.0, 2.0, 3.0, 4.0, 5.0, 6.0],))
close = numbers.close()

squares = tf.RandomShuffleQueue(10, 0, ["float"], shapes=[[]])
x = numbers.dequeue()
runner = tf.train.QueueRunner(squares, [squares.enqueue([x * x])] * 3)
tf.train.add_queue_runner(runner)
batch = squares.dequeue_many(2)

with tf.Session() as sess:
    sess.run(fill)
    sess.run(close)
    coord = tf.train.Coordinator()
    threads = tf.train.start_queue_runners(sess=sess, coord=coord)
    print(len(threads))
    seen = []
    try:
        while not coord.should_stop():
            seen += sess.run(batch).tolist()
    except tf.errors.OutOfRangeError:
        print("no more")
    finally:
        coord.request_stop()
    coord.join(threads)
    print(sorted(seen))
    print(coord.should_stop(), any(t.is_alive() for t in threads))
