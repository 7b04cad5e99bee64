"""Pictures that are encoded, decoded, distorted, cropped and resized; boxes drawn and chosen."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

picture = (np.add.outer(np.arange(12) * 9, np.arange(16) * 7)[..., None] + [0, 20, 40]).astype(np.uint8)
raw = tf.image.encode_png(picture)
image = tf.image.convert_image_dtype(tf.image.decode_png(raw, channels=3), tf.float32)
distorted = tf.random_crop(image, [8, 8, 3], seed=1)
distorted = tf.image.random_flip_left_right(distorted, seed=2)
distorted = tf.image.random_brightness(distorted, max_delta=0.2, seed=3)
distorted = tf.image.random_contrast(distorted, lower=0.5, upper=1.5, seed=4)
float_image = tf.image.per_image_standardization(distorted)
steps = {
    "resize": tf.image.resize_images(image, [6, 5]),
    "nearest": tf.image.resize_nearest_neighbor(image[None], [5, 5]),
    "bilinear": tf.image.resize_bilinear(image[None], [9, 7], align_corners=True),
    "bicubic": tf.image.resize_bicubic(image[None], [5, 6]),
    "area": tf.image.resize_area(image[None], [4, 4]),
    "pad": tf.image.resize_image_with_crop_or_pad(image, 10, 20),
    "central": tf.image.central_crop(image, 0.5),
    "gray": tf.image.rgb_to_grayscale(image),
    "hsv": tf.image.rgb_to_hsv(image),
    "hue": tf.image.adjust_hue(image, 0.1),
    "saturation": tf.image.adjust_saturation(image, 1.5),
    "gamma": tf.image.adjust_gamma(image, 0.8),
    "rot90": tf.image.rot90(image, k=3),
    "transposed": tf.image.transpose_image(image),
    "boxes": tf.image.draw_bounding_boxes(image[None], [[[0.1, 0.1, 0.6, 0.7]]]),
    "crops": tf.image.crop_and_resize(image[None], [[0.0, 0.0, 0.5, 0.5], [0.2, 0.3, 1.0, 0.9]], [0, 0], [3, 3]),
    "standardized": float_image,
    "patches": tf.extract_image_patches(image[None], [1, 3, 3, 1], [1, 4, 4, 1], [1, 1, 1, 1], "VALID"),
    "total": tf.image.total_variation(image),
}
boxes = tf.constant([[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [0, 10, 1, 11]], tf.float32)
kept = tf.image.non_max_suppression(boxes, [0.9, 0.75, 0.6, 0.95], 3, iou_threshold=0.5)
with tf.Session() as sess:
    print(sess.run(tf.image.extract_jpeg_shape(tf.image.encode_jpeg(picture))).tolist(), sess.run(kept).tolist())
    for name, value in sorted(sess.run(steps).items()):
        print(name, value.shape, "%.4f %.4f" % (value.mean(dtype=np.float64), value.std(dtype=np.float64)))
