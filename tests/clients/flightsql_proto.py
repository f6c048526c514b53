"""The few Flight SQL messages that pyarrow has no classes for, written byte by byte.

Flight SQL is protobuf inside Flight's opaque commands, tickets and actions. The messages used here are so small that
a generated module and its runtime would be the larger part. Must not be clever: it also writes messages that are wrong.
"""

PACKAGE = "type.googleapis.com/arrow.flight.protocol.sql."


# --- writing ---------------------------------------------------------------------------------------------------------


def varint(number):
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(tag, value):
    """One field: text and bytes as length-delimited, numbers and bools as varint, None as absent."""
    if value is None:
        return b""
    if isinstance(value, (bool, int)):
        return varint(tag << 3) + varint(int(value))
    if isinstance(value, str):
        value = value.encode()
    return varint(tag << 3 | 2) + varint(len(value)) + value


def message(*values, **numbered):
    """Fields in order from 1; `f7=x` gives field 7. A list is a repeated field."""
    fields = list(enumerate(values, start=1))
    fields += [(int(name[1:]), value) for name, value in numbered.items()]
    return b"".join(
        field(tag, item) for tag, value in fields for item in (value if isinstance(value, list) else [value])
    )


def any_message(name, body=b"", prefix=PACKAGE):
    """A `google.protobuf.Any`, which is how every Flight SQL command travels."""
    return field(1, prefix + name) + field(2, body)


def statement_query(sql, transaction=None):
    return any_message("CommandStatementQuery", message(sql, transaction))


def statement_update(sql, transaction=None):
    return any_message("CommandStatementUpdate", message(sql, transaction))


def prepared_query(handle):
    return any_message("CommandPreparedStatementQuery", message(handle))


def prepared_update(handle):
    return any_message("CommandPreparedStatementUpdate", message(handle))


def create_prepared(sql, transaction=None):
    return any_message("ActionCreatePreparedStatementRequest", message(sql, transaction))


def close_prepared(handle):
    return any_message("ActionClosePreparedStatementRequest", message(handle))


def substrait_scan(table, column):
    """A plan of Substrait, which is no message of Flight SQL: one number of every row of a table."""
    types = message(message(f7=message(f2=2)), f3=2)
    read = message(f2=message(column, types), f7=message(table))
    return message(f3=message(f2=message(message(read), column)))


def get_catalogs():
    return any_message("CommandGetCatalogs")


def get_db_schemas(catalog=None, schema_pattern=None):
    return any_message("CommandGetDbSchemas", message(catalog, schema_pattern))


def get_tables(catalog=None, schema_pattern=None, table_pattern=None, types=(), include_schema=None):
    body = message(catalog, schema_pattern, table_pattern, list(types), include_schema)
    return any_message("CommandGetTables", body)


def get_table_types():
    return any_message("CommandGetTableTypes")


def get_sql_info(*codes):
    # Packed, as every current protobuf writer does.
    packed = b"".join(varint(code) for code in codes)
    return any_message("CommandGetSqlInfo", field(1, packed) if packed else b"")


# --- reading ---------------------------------------------------------------------------------------------------------


def read_varint(data, at):
    number, shift = 0, 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number, at


def fields(data):
    """Every field of a message: {tag: [values]}; length-delimited ones as bytes, varints as int."""
    found, at = {}, 0
    while at < len(data):
        key, at = read_varint(data, at)
        tag, wire = key >> 3, key & 7
        if wire == 0:
            value, at = read_varint(data, at)
        elif wire == 2:
            length, at = read_varint(data, at)
            value, at = data[at : at + length], at + length
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
            value, at = data[at : at + length], at + length
        else:
            raise ValueError(f"wire type {wire} at {at}")
        found.setdefault(tag, []).append(value)
    return found


def first(found, tag, default=b""):
    return found.get(tag, [default])[0]


def unpack_any(data):
    """The bare name and the body of an `Any`."""
    found = fields(data)
    return first(found, 1).decode().rsplit(".", 1)[-1], first(found, 2)


class Prepared:
    """`ActionCreatePreparedStatementResult`."""

    def __init__(self, body):
        name, inner = unpack_any(body)
        assert name == "ActionCreatePreparedStatementResult", name
        found = fields(inner)
        self.handle = first(found, 1)
        self.dataset_schema = first(found, 2)
        self.parameter_schema = first(found, 3)
        self.is_update = bool(first(found, 4, 0))
