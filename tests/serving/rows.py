"""What is stored in a collection, read with each engine's own client."""

import numpy as np


def rows_of(database, engine):
    """All fields of all rows by `id`, which is the point's own in Qdrant where the payload has none."""
    if engine == "pgvector":
        cursor = database._execute("SELECT * FROM {table}")
        names = [column.name for column in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        rows = [
            {name: np.array(value.to_list()) if hasattr(value, "to_list") else value for name, value in row.items()}
            for row in rows
        ]
    elif engine == "qdrant":
        points = database.client.scroll(database.name, limit=100, with_vectors=True)[0]
        rows = [
            {"id": point.id} | (point.vector if isinstance(point.vector, dict) else {}) | point.payload
            for point in points
        ]
    elif engine == "milvus":
        database.client.load_collection(database.name)
        rows = database.client.query(database.name, "", limit=100, output_fields=["*"], consistency_level="Strong")
    else:
        rows = database.table.to_arrow().to_pylist()
    return {row["id"]: dict(row) for row in rows}
