"""The formulas once more: numpy, float64, one example and one term at a time."""

import numpy as np

THRESHOLDS = (0.5, -1.0, 20.0)  # of cross_modal_rank, in the step before
CENTRE = (0.1, -0.2, 0.05)  # of self_distill and masked_patches, after the step before
# loss -> the one of the same formula, of which it has a head's second scores; test_total.py
LOCAL = {
    name: name.removesuffix("_local")
    for name in ("hn_focal_local", "sigmoid_phrases_local", "sigmoid_own_positives_local")
}


def log_sum(values):
    values = np.asarray(list(values))
    return values.max() + np.log(np.exp(values - values.max()).sum())


def softplus(x):
    return np.log1p(np.exp(-abs(x))) + max(x, 0.0)


class Oracle:
    """Per-example values of the losses with hard negatives and positives of a batch."""

    def __init__(self, batch, duplicates="keep"):
        self.mask = np.asarray(batch["mask"])
        self.real = np.flatnonzero(self.mask)
        self.vectors = {
            key: np.asarray(batch[key], np.float64)
            for key in ("image", "text", "negative", "positive")
        }
        self.teacher = np.asarray(batch["teacher_text"], np.float64)
        self.has = {key: np.asarray(batch[f"{key}_mask"]) for key in ("negative", "positive")}
        self.scale, self.bias = float(batch["logit_scale"]), float(batch["logit_bias"])
        self.is_masking = duplicates == "mask"
        self.ids, self.captions = np.asarray(batch["id"]).tolist(), batch["tokens"].tolist()
        self.tokens = {key: batch[f"{key}_text"].tolist() for key in self.has}

    def counts(self, i, j, kind="text", k=0):
        """Whether image i is compared with the caption, or hard text k, of example j."""
        if kind != "text" and not self.has[kind][j, k]:
            return False
        if not self.is_masking:
            return True
        caption = self.captions[i]
        if kind == "negative":
            return caption != self.tokens[kind][j][k]
        if i == j:
            return True
        is_other = self.ids[i] != self.ids[j] and caption != self.captions[j]
        return is_other and (kind == "text" or caption != self.tokens[kind][j][k])

    def logit(self, a, i, b, *place):
        return self.scale * float(self.vectors[a][i] @ self.vectors[b][place])

    def all(self, kind, i):
        places = [(j, k) for j in self.real for k in range(self.has[kind].shape[1])]
        return [(j, k) for j, k in places if self.counts(i, j, kind, k)]

    def own(self, kind, i):
        return [k for j, k in self.all(kind, i) if j == i]

    def others(self, i):
        return [j for j in self.real if self.counts(i, j)]

    def seen_by(self, i, k):
        """The images that are compared with positive k of example i."""
        return [j for j in self.real if self.counts(j, i, "positive", k)]

    def values(self, formula):
        found = np.zeros(len(self.mask))
        for i in self.real:
            found[i] = formula(i)
        return found

    def negclip(self, i):
        own = self.logit("image", i, "text", i)
        row = [self.logit("image", i, "text", j) for j in self.others(i)]
        row += [self.logit("image", i, "negative", *place) for place in self.all("negative", i)]
        column = [self.logit("image", j, "text", i) for j in self.others(i)]
        return (log_sum(row) - own + log_sum(column) - own) / 2

    def sigmoid_negatives(self, i):
        logits = [self.logit("image", i, "text", j) + self.bias for j in self.others(i)]
        signs = [-1.0 if j == i else 1.0 for j in self.others(i)]
        value = sum(softplus(sign * x) for sign, x in zip(signs, logits, strict=True))
        for place in self.all("negative", i):
            value += softplus(self.logit("image", i, "negative", *place) + self.bias)
        return value

    def phrases(self, i):
        """Hard positives that image i is compared with, none of another that is one of its own."""
        tokens = self.tokens["positive"]
        own = [tokens[i][k] for k in np.flatnonzero(self.has["positive"][i])]
        found = self.all("positive", i)
        return [
            x for x in found if x[0] == i or not (self.is_masking and tokens[x[0]][x[1]] in own)
        ]

    def _over_texts(self, i, texts):
        """texts: image -> (is right, kind, place) of what it is compared with."""
        logits = [
            (1 - 2 * is_right) * (self.logit("image", i, kind, *place) + self.bias)
            for is_right, kind, place in texts(i)
        ]
        number = np.mean([len(texts(j)) for j in self.real])
        return sum(map(softplus, logits)) * len(self.real) / number

    def _captions(self, i):
        return [(j == i, "text", (j,)) for j in self.others(i)]

    def _phrases(self, i):
        return [(place[0] == i, "positive", place) for place in self.phrases(i)]

    def sigmoid_phrases(self, i):
        return self._over_texts(i, self._phrases)

    def sigmoid_positives(self, i):
        return self._over_texts(i, lambda i: self._captions(i) + self._phrases(i))

    def sigmoid_own_positives(self, i):
        def texts(i):
            return self._captions(i) + [(True, "positive", (i, k)) for k in self.own("positive", i)]

        return self._over_texts(i, texts)

    def svlc_negative(self, i):
        own = self.logit("image", i, "text", i)
        row = [self.logit("image", i, "negative", i, k) for k in self.own("negative", i)]
        return log_sum([own, *row]) - own

    def hn_focal(self, i, gamma=2.0, label_smoothing=0.02):
        logits = [self.logit("image", i, "text", i)]
        logits += [self.logit("image", i, "negative", i, k) for k in self.own("negative", i)]
        value = 0.0
        for c, logit in enumerate(logits):
            log_p = logit - log_sum(logits)
            label = (1 - label_smoothing) * (c == 0) + label_smoothing / len(logits)
            value -= label * (1 - np.exp(log_p)) ** gamma * log_p
        return value

    def cross_modal_rank(self, i):
        own = self.logit("image", i, "text", i)
        costs = np.zeros(self.has["negative"].shape[1])
        for k in self.own("negative", i):
            margin = min(max(THRESHOLDS[k], 0.0), 10.0)
            costs[k] = max(margin + self.logit("image", i, "negative", i, k) - own, 0.0)
        return costs.mean()

    def intra_modal(self, i):
        own = self.logit("image", i, "text", i)
        row = [self.logit("text", i, "negative", i, k) for k in self.own("negative", i)]
        return log_sum([own, *row]) - own

    def text_grounded(self, i):
        text = self.vectors["text"][i]
        own = 10 * float(text @ self.teacher[i])
        row = [10 * float(text @ self.vectors["negative"][i, k]) for k in self.own("negative", i)]
        return log_sum([own, *row]) - own

    def paraphrase(self, i):
        return self._analogies(i, [("text", True)])

    def _analogies(self, i, ways):
        """The mean over own hard positives k of the mean over `ways` (a, is_turned)."""
        found = []
        for k in self.own("positive", i):
            for a, is_turned in ways:
                if is_turned:
                    others = [self.logit(a, j, "positive", i, k) for j in self.seen_by(i, k)]
                else:
                    places = [(j, m) for j, m in self.all("positive", i) if m == k]
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
        others = [self.logit("image", i, "positive", *place) for place in self.all("positive", i)]
        others += [
            self.logit("image", j, "positive", i, k)
            for k in self.own("positive", i)
            for j in self.seen_by(i, k)
        ]
        return log_sum(others) - log_sum(own)

    def dac_negative_bag(self, i):
        own = [self.logit("image", i, "positive", i, k) for k in self.own("positive", i)]
        wrong = [self.logit("image", i, "negative", i, k) for k in self.own("negative", i)]
        return log_sum(own + wrong) - log_sum(own) if own and wrong else 0.0

    def is_unit(self, i, j, k):
        """Whether image i is compared with positive k of example j, which is none of its own."""
        texts = self.tokens["positive"]
        own = [text for m, text in enumerate(texts[i]) if self.has["positive"][i, m]]
        is_shared = self.is_masking and i != j and texts[j][k] in own
        return self.counts(i, j, "positive", k) and not is_shared

    def units(self, i):
        """The foils of the units are the last hard negatives, one each."""
        first = self.has["negative"].shape[1] - self.has["positive"].shape[1]

        def has(j, k):
            return self.has["positive"][j, k] and first + k in self.own("negative", j)

        found = []
        for k in [k for k in self.own("positive", i) if has(i, k)]:
            others = [j for j in self.real if has(j, k)]
            row = [("image", i, "positive", j, k) for j in others if self.is_unit(i, j, k)]
            row += [("image", i, "negative", i, first + k)]
            column = [("image", j, "positive", i, k) for j in others if self.is_unit(j, i, k)]
            sums = [log_sum([self.logit(*place) for place in places]) for places in (row, column)]
            found.append(sum(sums) / 2 - self.logit("image", i, "positive", i, k))
        return np.mean(found) if found else 0.0

    def clic(self, i):
        found = []
        for kind, *k in [("text",), *(("positive", k) for k in self.own("positive", i))]:
            is_text = kind == "text"
            seen = [
                j for j in self.real if (self.counts(i, j) if is_text else self.is_unit(i, j, *k))
            ]
            by = [
                j for j in self.real if (self.counts(j, i) if is_text else self.is_unit(j, i, *k))
            ]
            row = [self.logit("image", i, kind, j, *k) for j in seen]
            column = [self.logit("image", j, kind, i, *k) for j in by]
            own = self.logit("image", i, kind, i, *k)
            found.append((log_sum(row) + log_sum(column)) / 2 - own)
        return np.mean(found)

    def clic_negative(self, i):
        wrong = [self.logit("image", i, "negative", i, k) for k in self.own("negative", i)]
        right = [self.logit("image", i, "text", i)]
        right += [self.logit("image", i, "positive", i, k) for k in self.own("positive", i)]
        return np.mean([log_sum([own, *wrong]) - own for own in right])

    def clic_distance(self, i):
        has_first = 0 in self.own("positive", i)
        apart = self.vectors["text"][i] - self.vectors["positive"][i, 0]
        return float(apart @ apart) if has_first else 0.0
