"""Latencies and rows per second of a running `portcullis demo`, by ADBC through TLS.

python benches/measure_adbc.py DEMO_DIR URL [REPETITIONS]   (needs what tests/clients/requirements.txt names)
"""

import statistics
import sys
import time
from pathlib import Path

from adbc_driver_flightsql import dbapi


def main(directory: str, url: str, repetitions: str = "200") -> None:
    options = {
        "adbc.flight.sql.authorization_header": f"Bearer {Path(directory, 'token').read_text().strip()}",
        "adbc.flight.sql.client_option.tls_root_certs": Path(directory, "ca.pem").read_text(),
    }
    with dbapi.connect(url, db_kwargs=options, autocommit=True) as connection, connection.cursor() as cursor:

        def rows(sql: str) -> int:
            cursor.execute(sql)
            return cursor.fetch_arrow_table().num_rows

        def p50(what) -> float:
            what()
            times = []
            for _ in range(int(repetitions)):
                start = time.perf_counter()
                what()
                times.append(time.perf_counter() - start)
            return statistics.median(times) * 1000

        for sql in ("SELECT 1", "SELECT * FROM nation"):
            print(f"{sql}: p50 {p50(lambda: rows(sql)):.2f} ms")
        objects = p50(lambda: connection.adbc_get_objects(depth="tables").read_all())
        print(f'adbc_get_objects(depth="tables"): p50 {objects:.2f} ms')
        for _ in range(3):
            start = time.perf_counter()
            count = rows("SELECT * FROM lineitem")
            seconds = time.perf_counter() - start
            print(f"SELECT * FROM lineitem: {count} rows in {seconds:.2f} s, {count / seconds:.0f} rows/s")


if __name__ == "__main__":
    main(*sys.argv[1:])
