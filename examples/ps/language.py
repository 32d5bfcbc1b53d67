"""Which language is a word: English or German, by the parts of it that are up to five letters long.

    phalanx launch --servers 2 --workers 4 --restarts 20 -- python3 language.py
    phalanx launch --servers 2 --workers 4 --restarts 20 -- python3 language.py --embedding

Each part of a word is hashed to one of 2^20 keys of a sparse table. A worker pulls the rows of the words of a batch, and
pushes to these rows. A row is a weight (FTRL); or, with --embedding, a vector of 16 numbers, which is random before its
first push, and the score of a word is the product of the mean of its vectors and one more vector (Adagrad). With
--sync=bsp the last line has the same bits in each run, also when servers and workers die, and with --serial=4. The words
are those of Debian (apt install wamerican wngerman). Every fifth one is held out.
"""

import runs  # isort: skip  (before NumPy)
import sys

import numpy as np

LISTS = {"/usr/share/dict/american-english": "wamerican", "/usr/share/dict/ngerman": "wngerman"}
LONGEST = 5
BITS = 20
WIDTH = 16
OUTPUT, CONSTANT = 1 << BITS, (1 << BITS) + 1  # keys of the vector behind the mean, and of a row with one number


def read(path):
    """Return the words of a list: in lower case, which says nothing of the language, and letters alone."""
    try:
        with open(path, encoding="utf-8") as file:
            return {word for word in (line.strip().lower() for line in file) if word.isalpha() and latin(word)}
    except FileNotFoundError:
        sys.exit(f"language.py: there is no {path}: install the package {LISTS[path]} (apt install {' '.join(LISTS.values())})")


def latin(word):
    return all(ord(letter) < 256 for letter in word)


def load(count):
    """Return as many words of each list that are not in the other one, in some order, and whether they are German."""
    english, german = (read(path) for path in LISTS)
    random = np.random.default_rng(0)
    lists = [random.permutation(sorted(words))[:count] for words in (english - german, german - english)]
    words, answers = np.concatenate(lists), np.repeat([0.0, 1.0], [len(words) for words in lists])
    order = random.permutation(len(words))
    return words[order], answers[order]


class Words:
    """The keys of words: those of word i are keys[starts[i] : starts[i + 1]]."""

    def __init__(self, words):
        spelled = [f"<{word}>".encode("latin-1") for word in words]
        letters = np.frombuffer(b"".join(spelled), np.uint8).astype(np.uint64)
        owners = np.repeat(np.arange(len(spelled)), [len(word) for word in spelled])
        hashes, keys, whose = np.zeros_like(letters), [], []
        for length in range(1, LONGEST + 1):
            ends = len(letters) - length + 1
            # Hashes of so many letters, from those with one letter less. A part lies in one word.
            hashes = hashes[:ends] * np.uint64(0x100000001B3) + letters[length - 1 :] + np.uint64(1)
            within = owners[:ends] == owners[length - 1 :]
            keys.append(hashes[within] * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(64 - BITS))
            whose.append(owners[:ends][within])
        order = np.argsort(np.concatenate(whose), kind="stable")
        self.keys = np.concatenate(keys)[order]
        self.starts = np.append(0, np.cumsum(np.bincount(np.concatenate(whose), minlength=len(spelled))))

    def of(self, which):
        """Return the different keys of some words, and for each part of these which key it has, and which word."""
        lengths = self.starts[which + 1] - self.starts[which]
        owners = np.repeat(np.arange(len(which)), lengths)
        begins = np.cumsum(lengths) - lengths
        places = np.repeat(self.starts[which] - begins, lengths) + np.arange(len(owners))
        keys, parts = np.unique(self.keys[places], return_inverse=True)
        return keys, parts, owners, lengths


def probability(scores):
    return 1 / (1 + np.exp(-scores))


class Linear:
    """A weight for each part of a word: their sum is the score."""

    table = {"update": "ftrl", "rate": 0.35, "l1": 0.01, "l2": 0.1}

    def __init__(self, words, which, answers):
        self.keys, self.parts, self.owners, _ = words.of(which)
        self.answers = answers[which]

    def scores(self, weights):
        return np.bincount(self.owners, weights[self.parts], len(self.answers))

    def push(self, weights):
        errors = probability(self.scores(weights)) - self.answers
        return self.keys, np.bincount(self.parts, errors[self.owners], len(self.keys)).astype(np.float32)


class Embedding:
    """A vector for each part of a word."""

    table = {"width": WIDTH, "update": "adagrad", "rate": 0.16, "init": "uniform", "scale": 0.25}

    def __init__(self, words, which, answers):
        keys, self.parts, self.owners, self.lengths = words.of(which)
        self.keys = np.append(keys, np.array([OUTPUT, CONSTANT], keys.dtype))
        self.answers = answers[which]

    def means(self, rows):
        begins = np.cumsum(self.lengths) - self.lengths
        return np.add.reduceat(rows[self.parts].astype(np.float64), begins) / self.lengths[:, None]

    def scores(self, rows):
        return (self.means(rows) * rows[-2]).sum(1) + rows[-1, 0]

    def push(self, rows):
        errors = probability(self.scores(rows)) - self.answers
        shares = np.bincount(self.parts, (errors / self.lengths)[self.owners], len(self.keys))
        gradient = shares[:, None] * rows[-2].astype(np.float64)
        gradient[-2] = (errors[:, None] * self.means(rows)).sum(0)
        gradient[-1] = 0
        gradient[-1, 0] = errors.sum()
        return self.keys, gradient.astype(np.float32)


class Languages:
    def __init__(self, kind, count, size):
        words, self.answers = load(count)
        self.kind, self.size, self.words = kind, size, Words(words)
        held = np.arange(len(words)) % 5 == 4
        self.known, self.others = np.flatnonzero(~held), np.flatnonzero(held)
        self.everything = kind(self.words, np.arange(len(words)), self.answers)

    def batch(self, rank, workers, clock):
        clocks = -(-len(self.known) // (self.size * workers))  # until all words have been dealt out
        dealt = np.random.default_rng(clock // clocks).permutation(self.known)[clock % clocks :: clocks]
        return self.kind(self.words, dealt[rank::workers], self.answers)

    def reported(self):
        return self.everything.keys

    def report(self, rows):
        scores, answers = self.everything.scores(rows), self.answers
        right = (scores > 0) == (answers > 0)
        # The logarithm of 1 + exp(-x), where x is the score of the right answer.
        losses = np.logaddexp(0, np.where(answers > 0, -scores, scores))
        return f"accuracy {right[self.others].mean():.4f}, loss {losses[self.others].mean():.6f}"


def main():
    flags = runs.parser(__doc__, clocks=100)
    flags.add_argument("--embedding", action="store_true", help="vectors in the place of weights")
    flags.add_argument("--words", type=int, default=80_000, help="as many of each language, or all (%(default)s)")
    flags.add_argument("--batch", type=int, default=1000, help="words of a worker and a clock, about (%(default)s)")
    args = flags.parse_args()
    kind = Embedding if args.embedding else Linear
    # By a hash of the key: by range, the keys below 2^20 of a sparse table are all on the first server.
    table = {"name": "parts", "split": "hash", **kind.table}
    runs.run(args, table, lambda _: Languages(kind, args.words, args.batch))


if __name__ == "__main__":
    main()
