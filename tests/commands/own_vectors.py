"""Vectors of no model of ours, with hubs, as files in a folder."""

import numpy as np

QUERIES, ITEMS, DIM, K = 300, 120, 16, 10


def vectors():
    """Queries beside their items, all pulled one way so that hubs arise; other queries; which item each wants."""
    generator = np.random.default_rng(0)
    side = np.full(DIM, 1 / np.sqrt(DIM))
    items = generator.normal(size=(ITEMS, DIM)) + 2.5 * np.exp(generator.normal(size=(ITEMS, 1))) * side
    items /= np.linalg.norm(items, axis=1, keepdims=True)

    def draw(n):
        wanted = generator.integers(0, ITEMS, n)
        rows = items[wanted] + 0.14 * generator.normal(size=(n, DIM)) + 0.5 * side
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32), wanted

    queries, wanted = draw(QUERIES)
    return queries, items.astype(np.float32), draw(200)[0], wanted


def write_vectors(folder):
    """Write the vectors, truth by rows and by ids, captions, and a folder for images; returns the folder."""
    queries, items, reference, wanted = vectors()
    for name, array in (("q", queries), ("m", items), ("train", reference), ("raw", 3 * items)):
        np.save(folder / f"{name}.npy", array)
    np.savez(folder / "both.npz", text=queries, image=items)
    ids = [f"photo {item:03d}" for item in range(ITEMS)]
    for name, named in (("rows.csv", range(ITEMS)), ("pairs.csv", ids)):
        lines = [f"{query},{named[item]}" for query, item in enumerate(wanted) if query % 10]
        (folder / name).write_text("\n".join(["query,item", *lines]) + "\n")
    (folder / "ids.txt").write_text("\n".join(ids))
    (folder / "captions.txt").write_text("\n".join(f"a photo of thing {item}" for item in range(ITEMS)))
    (folder / "asked.txt").write_text("\n".join(f"where is thing {item}?" for item in wanted))
    (folder / "photos").mkdir()
    return folder
