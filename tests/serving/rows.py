"""What is stored in a collection, read with each engine's own client."""

import numpy as np


def rows_of(database, engine):
    """All fields of all rows by `id`, which is the point's own in Qdrant where the payload has none."""
    if engine == "pgvector":
        cursor = database._do("SELECT * FROM {table}")
        names = [one.name for one in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        rows = [
            {name: np.array(one.to_list()) if hasattr(one, "to_list") else one for name, one in row.items()}
            for row in rows
        ]
    elif engine == "qdrant":
        points = database.client.scroll(database.name, limit=100, with_vectors=True)[0]
        rows = [{"id": one.id} | (one.vector if isinstance(one.vector, dict) else {}) | one.payload for one in points]
    elif engine == "milvus":
        database.client.load_collection(database.name)
        rows = database.client.query(database.name, "", limit=100, output_fields=["*"], consistency_level="Strong")
    else:
        rows = database.table.to_arrow().to_pylist()
    return {row["id"]: dict(row) for row in rows}
