"""SQL that more than one client suite asks: schemas that are easy to get wrong, types, and queries without an end.

Only data; what has to come back is said beside each.
"""

import datetime
import decimal
import os

import pyarrow as pa

REMOTE = "PORTCULLIS_CLUSTER_PORTS" in os.environ
"""Whether the cluster behind the gate is in stock processes of its own, which listen on these ports."""

TABLES = ["customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier"]

# A server that declares one nullability and streams another is refused by ADBC with "inconsistent schema".
SCHEMAS = {
    "aliased_aggregate": "SELECT sum(l_quantity) AS total, avg(l_discount) AS mean FROM lineitem",
    "boolean_logic": "SELECT n_nationkey > 3 AND n_name IS NOT NULL AS b FROM nation",
    "case_with_else": "SELECT CASE WHEN n_nationkey > 3 THEN 'big' ELSE 'small' END AS size FROM nation",
    "case_without_else": "SELECT CASE WHEN n_nationkey > 3 THEN 'big' END AS size FROM nation",
    "coalesce": "SELECT coalesce(nullif(n_regionkey, 1), 0) AS r FROM nation",
    "constant": "SELECT 1 AS one, 'two' AS two, NULL AS nothing",
    "constant_beside_columns": "SELECT n_name, 1 AS one, 'x' AS x FROM nation",
    "count_distinct": "SELECT count(DISTINCT l_suppkey) AS n FROM lineitem",
    "count_star": "SELECT count(*) FROM nation",
    "count_star_constant": "SELECT count(*) AS n FROM (VALUES (1), (2)) AS t(a)",
    "duplicate_names": "SELECT a.n_name, b.n_name FROM nation a JOIN nation b ON a.n_nationkey = b.n_nationkey",
    "empty": "SELECT n_name, n_nationkey FROM nation WHERE n_nationkey < 0",
    "empty_aggregate": "SELECT max(n_name) AS m, count(*) AS n FROM nation WHERE n_nationkey < 0",
    "empty_constant": "SELECT 1 AS one WHERE false",
    "except": "SELECT n_regionkey FROM nation EXCEPT SELECT r_regionkey FROM region WHERE r_regionkey > 1",
    "exists": "SELECT r_name FROM region WHERE EXISTS (SELECT 1 FROM nation WHERE n_regionkey = r_regionkey)",
    "full_join": "SELECT n.n_name, r.r_name FROM nation n FULL JOIN region r ON n.n_nationkey = r.r_regionkey",
    "group_and_count": "SELECT n_regionkey, count(*) AS n FROM nation GROUP BY n_regionkey",
    "grouping_sets": "SELECT n_regionkey, count(*) AS n FROM nation GROUP BY ROLLUP (n_regionkey)",
    "information_schema": "SELECT table_name, table_type FROM information_schema.tables",
    "left_join": "SELECT n.n_name, r.r_name FROM nation n LEFT JOIN region r ON n.n_nationkey = r.r_regionkey",
    "limit_zero": "SELECT * FROM nation LIMIT 0",
    "scalar_subquery": "SELECT n_name, (SELECT max(r_name) FROM region) AS m FROM nation",
    "sum": "SELECT sum(n_nationkey) FROM nation",
    "sum_of_case": "SELECT sum(CASE WHEN n_regionkey = 1 THEN 1 ELSE 0 END) AS n FROM nation",
    "union_all": "SELECT n_name AS x FROM nation UNION ALL SELECT NULL",
    "union_all_constant": "SELECT 1 AS x UNION ALL SELECT NULL",
    "union_distinct": "SELECT n_regionkey AS x FROM nation UNION SELECT r_regionkey FROM region",
    "union_of_types": "SELECT 1 AS x UNION ALL SELECT 2.5",
    "values": "VALUES (1, 'a'), (2, NULL)",
    "whole_table": "SELECT * FROM lineitem WHERE l_orderkey < 100",
    "window": (
        "SELECT n_name, row_number() OVER (ORDER BY n_name) AS n, lag(n_name) OVER (ORDER BY n_name) AS p FROM nation"
    ),
}

UTC = datetime.timezone.utc

# expression: the type that may be declared, and the value. Views, dictionaries and large lists are what clients cannot
# read; they have to arrive as their plain kind.
TYPES = {
    "arrow_cast(-8, 'Int8')": (pa.int8(), -8),
    "arrow_cast(-16, 'Int16')": (pa.int16(), -16),
    "arrow_cast(-32, 'Int32')": (pa.int32(), -32),
    "-9223372036854775807": (pa.int64(), -9223372036854775807),
    "arrow_cast(255, 'UInt8')": (pa.uint8(), 255),
    "arrow_cast(65535, 'UInt16')": (pa.uint16(), 65535),
    "arrow_cast(4294967295, 'UInt32')": (pa.uint32(), 4294967295),
    "arrow_cast('18446744073709551615', 'UInt64')": (pa.uint64(), 18446744073709551615),
    "CAST(1.5 AS REAL)": (pa.float32(), 1.5),
    "CAST(2.25 AS DOUBLE)": (pa.float64(), 2.25),
    "CAST('12.34' AS DECIMAL(10, 2))": (pa.decimal128(10, 2), decimal.Decimal("12.34")),
    "CAST('123456789012345678901234567890123456789.5' AS DECIMAL(50, 1))": (
        pa.decimal256(50, 1),
        decimal.Decimal("123456789012345678901234567890123456789.5"),
    ),
    "true": (pa.bool_(), True),
    "'grüße'": (pa.string(), "grüße"),
    "''": (pa.string(), ""),
    "arrow_cast('view', 'Utf8View')": (pa.string(), "view"),
    "arrow_cast('large', 'LargeUtf8')": (pa.large_string(), "large"),
    "arrow_cast('dict', 'Dictionary(Int32, Utf8)')": (pa.string(), "dict"),
    "arrow_cast('viewdict', 'Dictionary(Int8, Utf8View)')": (pa.string(), "viewdict"),
    "X'00FF'": (pa.binary(), b"\x00\xff"),
    "arrow_cast(X'00FF', 'BinaryView')": (pa.binary(), b"\x00\xff"),
    "arrow_cast(X'00FF', 'LargeBinary')": (pa.large_binary(), b"\x00\xff"),
    "arrow_cast(X'00FF', 'FixedSizeBinary(2)')": (pa.binary(2), b"\x00\xff"),
    "DATE '2024-02-29'": (pa.date32(), datetime.date(2024, 2, 29)),
    "arrow_cast(DATE '2024-02-29', 'Date64')": (pa.date64(), datetime.date(2024, 2, 29)),
    "TIME '12:34:56'": (pa.time64("ns"), datetime.time(12, 34, 56)),
    "TIMESTAMP '2024-02-29 12:34:56'": (pa.timestamp("ns"), datetime.datetime(2024, 2, 29, 12, 34, 56)),
    "arrow_cast(TIMESTAMP '2024-02-29 12:34:56', 'Timestamp(Second, None)')": (
        pa.timestamp("s"),
        datetime.datetime(2024, 2, 29, 12, 34, 56),
    ),
    "arrow_cast('2024-02-29T12:34:56Z', 'Timestamp(Microsecond, Some(\"+00:00\"))')": (
        pa.timestamp("us", "+00:00"),
        datetime.datetime(2024, 2, 29, 12, 34, 56, tzinfo=UTC),
    ),
    "INTERVAL '1 month 2 days 3 seconds'": (
        pa.month_day_nano_interval(),
        pa.MonthDayNano([1, 2, 3_000_000_000]),
    ),
    "arrow_cast(5, 'Duration(Second)')": (pa.duration("s"), datetime.timedelta(seconds=5)),
    "make_array(1, 2, NULL)": (pa.list_(pa.int64()), [1, 2, None]),
    "arrow_cast(make_array(1, 2), 'LargeList(Int64)')": (pa.list_(pa.int64()), [1, 2]),
    "make_array(arrow_cast('in', 'Utf8View'))": (pa.list_(pa.string()), ["in"]),
    "named_struct('a', 1, 'b', arrow_cast('in', 'Utf8View'))": (
        pa.struct([("a", pa.int64()), ("b", pa.string())]),
        {"a": 1, "b": "in"},
    ),
    "MAP {'k': 1}": (pa.map_(pa.string(), pa.int64()), [("k", 1)]),
    "NULL": (pa.null(), None),
    "CAST(NULL AS INT)": (pa.int32(), None),
}


def plain(data_type):
    """A type without what may differ: names and nullability of the fields inside it."""
    if pa.types.is_list(data_type):
        return pa.list_(plain(data_type.value_type))
    if pa.types.is_struct(data_type):
        return pa.struct([(field.name, plain(field.type)) for field in data_type])
    if pa.types.is_map(data_type):
        return pa.map_(plain(data_type.key_type), plain(data_type.item_type))
    return data_type


# Longer than any test waits, on any machine, and it returns nothing before it is done.
ENDLESS = """
SELECT sum(a.l_quantity * b.l_extendedprice + c.l_tax) AS s
FROM lineitem a CROSS JOIN lineitem b CROSS JOIN lineitem c
"""
if REMOTE:
    # Stock executors of Ballista 55 work on at what was cancelled: some tens of seconds, so that it ends some time.
    ENDLESS = """
    SELECT sum(a.l_quantity * b.l_extendedprice + b.l_tax) AS s
    FROM lineitem a CROSS JOIN lineitem b WHERE a.l_orderkey < 1600
    """

# What no client may do. Each is refused at once, and nothing has happened afterwards.
REFUSED = {
    "copy_to_a_file": "COPY nation TO '/etc/portcullis-was-here.csv'",
    "copy_to_a_url": "COPY (SELECT 1) TO 'file:///etc/portcullis-was-here.parquet' STORED AS PARQUET",
    "create_external_table_absolute": "CREATE EXTERNAL TABLE {name} STORED AS CSV LOCATION '/etc/passwd'",
    "create_external_table_http": "CREATE EXTERNAL TABLE {name} STORED AS CSV LOCATION 'http://127.0.0.1:9/latest/'",
    "create_external_table_relative": "CREATE EXTERNAL TABLE {name} STORED AS CSV LOCATION '../../../../etc/passwd'",
    "create_external_table_s3": "CREATE EXTERNAL TABLE {name} STORED AS PARQUET LOCATION 's3://bucket/x/'",
    "create_external_table_url": "CREATE EXTERNAL TABLE {name} STORED AS CSV LOCATION 'file:///etc/passwd'",
    "create_function": "CREATE FUNCTION {name}(DOUBLE) RETURNS DOUBLE RETURN $1 + 1",
    "delete": "DELETE FROM nation WHERE n_nationkey = 1",
    "drop_a_shared_table": "DROP TABLE nation",
    "explain_analyze_copy": "EXPLAIN ANALYZE COPY nation TO '/etc/portcullis-was-here.csv'",
    "explain_copy": "EXPLAIN COPY nation TO '/etc/portcullis-was-here.csv'",
    "insert": "INSERT INTO nation SELECT * FROM nation",
    "insert_values": "INSERT INTO region VALUES (99, 'X', 'x')",
    "local_file_as_table": "SELECT * FROM '/etc/passwd'",
    "local_file_as_quoted_table": 'SELECT * FROM "/etc/passwd"',
    "prepare_a_copy": "PREPARE {name} AS COPY nation TO '/etc/portcullis-was-here.csv'",
    "runtime_memory": "SET datafusion.runtime.memory_limit = '1K'",
    "runtime_temp_directory": "SET datafusion.runtime.temp_directory = '/etc'",
    "transaction": "BEGIN",
    "two_statements": "SELECT 1; SELECT 2",
    "two_statements_with_ddl": "SELECT 1; DROP TABLE nation",
    "update": "UPDATE nation SET n_name = 'X'",
}
