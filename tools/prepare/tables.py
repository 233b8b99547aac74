"""Records of tables: CSV and TSV, Parquet, Arrow and Feather."""

import csv

from .streams import InputError, Raw, name_unpacked

ROWS = 1024  # that are in memory at once
LONGEST_CELL = 1 << 30  # characters


def csv_rows(stream, separator):
    csv.field_size_limit(LONGEST_CELL)
    tabs = name_unpacked(stream.path).suffix.lower() == ".tsv"
    reader = csv.reader(stream.text(newline=""), delimiter="\t" if tabs else ",", strict=True)
    try:
        header = next(reader, [])
        twice = sorted({name for name in header if header.count(name) > 1})
        if twice:
            raise InputError(f"{stream.path}:1", f"names the column {twice[0]!r} twice")
        begin = reader.line_num + 1
        for cells in reader:
            where, begin = f"{stream.path}:{begin}", reader.line_num + 1
            if not cells:
                continue
            if len(cells) == len(header):
                yield Raw("row", dict(zip(header, cells)), where)
            else:
                yield Raw("broken", f"has {len(cells)} cells, and the first line names {len(header)} columns", where)
    except csv.Error as error:
        raise InputError(f"{stream.path}:{reader.line_num}", f"is not {'TSV' if tabs else 'CSV'}: {error}") from None


def batches_of_parquet(pyarrow, stream):
    """(first row, rows of all, batch) of a Parquet file."""
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(stream.seekable(), pre_buffer=False) as file:
        done, rows = 0, file.metadata.num_rows
        for batch in file.iter_batches(batch_size=ROWS):
            yield done, rows, batch
            done += batch.num_rows


def batches_of_arrow(pyarrow, stream):
    """The same of an Arrow file (Feather), or stream, as the package datasets keeps its own."""
    import pyarrow.ipc

    file = stream.seekable()
    first = file.read(6)
    file.seek(0)
    if first[:4] == b"FEA1":
        raise InputError(stream.path, "is Feather of version 1: write it anew with version 2")
    if first == b"ARROW1":
        source = pyarrow.ipc.open_file(file)
        batches = (source.get_batch(i) for i in range(source.num_record_batches))
    else:
        batches = pyarrow.ipc.open_stream(file)
    done = 0
    for batch in batches:
        for at in range(0, batch.num_rows, ROWS):
            yield done + at, None, batch.slice(at, ROWS)
        done += batch.num_rows


def table_rows(batches, what):
    """The reader of a kind of tables."""

    def rows(stream, separator):
        import pyarrow

        try:
            for first, count, batch in batches(pyarrow, stream):
                for number, record in enumerate(batch.to_pylist(), first + 1):
                    yield Raw("row", record, f"{stream.path}:row {number}")
                if count:
                    stream.part = (first + batch.num_rows) / count
        except pyarrow.ArrowException as error:
            raise InputError(stream.path, f"cannot be read as {what}: {str(error).splitlines()[0]}") from None

    return rows
