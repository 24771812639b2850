"""The formulas once more: numpy, float64, one example and one term at a time."""

import numpy as np


def log_sum(values):
    values = np.asarray(list(values))
    return values.max() + np.log(np.exp(values - values.max()).sum())


def softplus(x):
    return np.log1p(np.exp(-abs(x))) + max(x, 0.0)


class Oracle:
    """Per-example values of the losses with hard negatives and positives of a batch."""

    def __init__(self, batch):
        self.mask = np.asarray(batch["mask"])
        self.real = np.flatnonzero(self.mask)
        self.vectors = {
            key: np.asarray(batch[key], np.float64)
            for key in ("image", "text", "negative", "positive")
        }
        self.has = {key: np.asarray(batch[f"{key}_mask"]) for key in ("negative", "positive")}
        self.scale, self.bias = float(batch["logit_scale"]), float(batch["logit_bias"])

    def logit(self, a, i, b, *place):
        return self.scale * float(self.vectors[a][i] @ self.vectors[b][place])

    def all(self, kind):
        return [(j, k) for j in self.real for k in np.flatnonzero(self.has[kind][j])]

    def own(self, kind, i):
        return np.flatnonzero(self.has[kind][i])

    def values(self, formula):
        found = np.zeros(len(self.mask))
        for i in self.real:
            found[i] = formula(i)
        return found

    def negclip(self, i):
        own = self.logit("image", i, "text", i)
        row = [self.logit("image", i, "text", j) for j in self.real]
        row += [self.logit("image", i, "negative", *place) for place in self.all("negative")]
        column = [self.logit("image", j, "text", i) for j in self.real]
        return (log_sum(row) - own + log_sum(column) - own) / 2

    def sigmoid_negatives(self, i):
        logits = [self.logit("image", i, "text", j) + self.bias for j in self.real]
        signs = [-1.0 if j == i else 1.0 for j in self.real]
        value = sum(softplus(sign * x) for sign, x in zip(signs, logits, strict=True))
        for place in self.all("negative"):
            value += softplus(self.logit("image", i, "negative", *place) + self.bias)
        return value

    def svlc_negative(self, i):
        own = self.logit("image", i, "text", i)
        row = [self.logit("image", i, "negative", i, k) for k in self.own("negative", i)]
        return log_sum([own, *row]) - own

    def _analogies(self, i, ways):
        """The mean over own hard positives k of the mean over `ways` (a, is_turned)."""
        found = []
        for k in self.own("positive", i):
            for a, is_turned in ways:
                if is_turned:
                    others = [self.logit(a, j, "positive", i, k) for j in self.real]
                else:
                    places = [(j, m) for j, m in self.all("positive") if m == k]
                    others = [self.logit(a, i, "positive", *place) for place in places]
                found.append(log_sum(others) - self.logit(a, i, "positive", i, k))
        return np.mean(found) if found else 0.0

    def analogy(self, i):
        return self._analogies(i, [("image", False), ("text", False)])

    def analogy_symmetric(self, i):
        return self._analogies(i, [(a, t) for a in ("image", "text") for t in (False, True)])

    def dac_mil(self, i):
        own = [self.logit("image", i, "positive", i, k) for k in self.own("positive", i)]
        if not own:
            return 0.0
        others = [self.logit("image", i, "positive", *place) for place in self.all("positive")]
        others += [
            self.logit("image", j, "positive", i, k)
            for j in self.real
            for k in self.own("positive", i)
        ]
        return log_sum(others) - log_sum(own)

    def dac_negative_bag(self, i):
        own = [self.logit("image", i, "positive", i, k) for k in self.own("positive", i)]
        wrong = [self.logit("image", i, "negative", i, k) for k in self.own("negative", i)]
        return log_sum(own + wrong) - log_sum(own) if own and wrong else 0.0
