"""A fifth engine, in this process: what a new engine needs is one file like this, and one line in `ENGINES`."""

from contextlib import contextmanager

import numpy as np

from vsehub.serving.databases.engines import ranked

COLLECTIONS = {}  # (URI, name) -> [metadata, {id: (vector, columns)}]


@contextmanager
def connect(uri, name):
    yield Memory(uri, name)


class Memory:
    def __init__(self, uri, name):
        self.uri, self.name = uri, name

    @property
    def rows(self):
        return COLLECTIONS[self.uri, self.name][1]

    def metadata(self, new=None):
        if new is not None:
            COLLECTIONS[self.uri, self.name][0] = new
        return COLLECTIONS.get((self.uri, self.name), [None])[0]

    def create(self, dimensions, metadata):
        COLLECTIONS[self.uri, self.name] = [metadata, {}]

    def upsert(self, ids, vectors, labels=None):
        for row, (one, vector) in enumerate(zip(ids, vectors, strict=True)):
            known = self.rows.get(one, (None, {}))[1]
            self.rows[one] = vector, known | {"id": one} | ({"label": labels[row]} if labels else {})

    def index(self, approximate):
        pass

    def count(self):
        return len(self.rows)

    def search(self, vectors, k):
        products = vectors @ np.stack([vector for vector, _ in self.rows.values()]).T
        columns = [row for _, row in self.rows.values()]
        lists = zip(products, np.argsort(-products)[:, :k], strict=True)
        return [
            [(columns[one]["id"], columns[one].get("label"), float(own[one])) for one in best] for own, best in lists
        ]

    def delete(self, ids):
        for one in ids:
            self.rows.pop(one, None)

    def scan(self):
        for one, (vector, _) in self.rows.items():
            yield [one], vector[None]


def note(address, name, k):
    return (
        "from vsehub.serving.databases.memory import Memory\n",
        f"base = Memory({address}, {name!r})\n"
        f"found = base.search(vectors, {k})\n"
        "ids = [[one for one, _, _ in hits] for hits in found]\n"
        "products = np.array([[product for _, _, product in hits] for hits in found])\n",
    )


def read_biases(database, ids, field):
    rows = ((str(row["id"]), key, row.get(field)) for key, (_, row) in database.rows.items())
    return [row for row in rows if row[0] in ids]


def put_biases(database, biases, field):
    for key, bias in biases.items():
        database.rows[key][1][field] = bias


def bias_note(address, name, k, scale, field, vector):
    return (
        "from vsehub.serving.databases.memory import Memory\n",
        f"items = Memory({address}, {name!r}).rows.values()\n"
        f"rows = [[(row['id'], v @ q, row.get({field!r})) for v, row in items] for q in queries]\n"
        f"{ranked(scale, k)}",
    )
