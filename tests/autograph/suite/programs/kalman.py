"""A Kalman filter with missing and rejected measurements, and a smoother."""

import numpy as np


def inverse(xp, m):
    """The inverse of a matrix of order 2."""
    determinant = m[0, 0] * m[1, 1] - m[0, 1] * m[1, 0]
    out = xp.zeros(2, 2)
    out[0, 0] = m[1, 1]
    out[1, 1] = m[0, 0]
    out[0, 1] = -m[0, 1]
    out[1, 0] = -m[1, 0]
    return out / determinant


class Filter:
    """The mean and covariance of position and speed."""

    def __init__(self, xp, mean, covariance, drift, noise, error):
        self.xp = xp
        self.mean = mean
        self.covariance = covariance
        self.drift = drift
        self.noise = noise
        self.error = error
        self.rejected = 0

    def predict(self):
        self.mean = self.xp.sum(self.drift * self.mean, 1)
        self.covariance = self.drift @ self.covariance @ self.xp.transpose(self.drift) + self.noise

    def update(self, measured):
        """Moves the mean to the measurement unless that is too far away."""
        surprise = measured - self.mean[0]
        variance = self.covariance[0, 0] + self.error
        if surprise * surprise > 9.0 * variance:
            self.rejected += 1
            return 0.0
        gain = self.covariance[:, 0] / variance
        self.mean = self.mean + gain * surprise
        self.covariance = self.covariance - self.xp.reshape(gain, (2, 1)) * self.covariance[0]
        return -0.5 * (surprise * surprise / variance + self.xp.log(variance))


def smooth(xp, means, covariances, drift, noise):
    """Corrects each mean by all later measurements (Rauch, Tung and Striebel)."""
    out = means + 0.0
    for back in range(1, len(means)):
        t = len(means) - 1 - back
        predicted = drift @ covariances[t] @ xp.transpose(drift) + noise
        gain = covariances[t] @ xp.transpose(drift) @ inverse(xp, predicted)
        out[t] = means[t] + xp.sum(gain * (out[t + 1] - xp.sum(drift * means[t], 1)), 1)
    return out


def program(xp, measured, known, mean, noise, error):
    drift = xp.eye(2)
    drift[0, 1] = 0.5
    model = Filter(xp, mean, xp.eye(2), drift, noise * xp.eye(2), error)
    means, covariances, likelihood, missing = [], [], 0.0, 0
    for value, is_known in zip(measured, known):
        model.predict()
        if is_known:
            likelihood += model.update(value)
        else:
            missing += 1
        means.append(model.mean)
        covariances.append(model.covariance)
    smoothed = smooth(xp, xp.stack(means), xp.stack(covariances), drift, model.noise)
    return {"smoothed": smoothed, "likelihood": likelihood, "counts": (model.rejected, missing), "last": model.mean}


CALLS = (
    (np.array([0.1, 0.4, 9.0, 1.1, 1.4]), np.array([True, True, True, False, True]), np.zeros(2), 0.05, 0.1),
    (np.array([2.0, 1.0, 0.3, -0.5, -1.0]), np.array([False, True, True, True, True]), np.array([2.5, -1.0]), 0.2, 0.3),
)
