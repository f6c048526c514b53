//! Queries of TPC-H over a table of which a part is seen, against the same queries with that part written out.

use std::collections::BTreeMap;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use portcullis::config::{Grant, Grantee, RowRule};
use tpchgen::generators::LineItemGenerator;
use tpchgen_arrow::LineItemArrow;

use super::house::{House, ROOT, grants, table, tables};
use crate::support::client::as_text;
use crate::support::{on_runtime, reading};

#[test]
fn queries_of_tpch_over_a_part_of_lineitem_are_those_with_the_policy_written_out() {
    on_runtime(async {
        let generated: Vec<RecordBatch> =
            LineItemArrow::new(LineItemGenerator::new(0.01, 1, 1)).map(Result::unwrap).collect();
        let lineitem =
            table("shop", "public", "lineitem", &concat_batches(&generated[0].schema(), &generated).unwrap());
        let mut rules = grants();
        rules.push(Grant {
            rows: RowRule::Where(PART.to_owned()),
            masks: BTreeMap::from([("l_tax".to_owned(), "0".to_owned()), ("l_comment".to_owned(), "NULL".to_owned())]),
            ..reading("shop.public.lineitem", Grantee::Role("analyst".to_owned()))
        });
        let house = House::with(tables().into_iter().chain([lineitem]).collect(), rules).await;
        let (analyst, owner) = (house.client("analyst"), house.client("owner"));

        // Another engine over the same file says what the part is.
        let plain = SessionContext::new();
        let file = ROOT.join("tables/lineitem.parquet");
        plain.register_parquet("lineitem", file.to_str().unwrap(), ParquetReadOptions::default()).await.unwrap();
        let count = |part: &str| format!("SELECT count(*) FROM lineitem WHERE {part}");
        let counted = async |part: &str| as_text(&plain.sql(&count(part)).await.unwrap().collect().await.unwrap());
        let (part, all) = (counted(PART).await, counted("true").await);
        assert_ne!(part, all);
        assert_eq!(analyst.text("SELECT count(*) FROM lineitem").await.unwrap(), part);
        assert_eq!(owner.text("SELECT count(*) FROM lineitem").await.unwrap(), all);

        for query in QUERIES {
            let seen = sorted(analyst.text(&query.replace("{t}", "lineitem")).await.unwrap());
            let whole = sorted(owner.text(&query.replace("{t}", "lineitem")).await.unwrap());
            let copy = format!(
                "(SELECT l_orderkey, l_quantity, l_extendedprice, l_discount, CAST(0 AS DECIMAL(15, 2)) AS l_tax, \
                 l_returnflag, l_linestatus, l_shipdate, l_commitdate, l_receiptdate, l_shipmode, \
                 CAST(NULL AS VARCHAR) AS l_comment FROM lineitem WHERE {PART})"
            );
            let written = sorted(owner.text(&query.replace("{t}", &copy)).await.unwrap());
            assert_eq!(seen, written, "{query}");
            assert_ne!(seen, whole, "{query}");
            assert!(!seen.is_empty(), "{query}");
        }
    });
}

fn sorted(mut rows: Vec<String>) -> Vec<String> {
    rows.sort();
    rows
}

const PART: &str = "l_shipdate < DATE '1995-01-01' AND l_returnflag <> 'A' AND l_quantity % 3 <> 0";
const QUERIES: &[&str] = &[
    // Query 1.
    "SELECT l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice), \
     sum(l_extendedprice * (1 - l_discount)), sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)), avg(l_quantity), \
     avg(l_extendedprice), avg(l_discount), count(*) FROM {t} AS l WHERE l_shipdate <= DATE '1998-09-02' \
     GROUP BY l_returnflag, l_linestatus",
    // Query 6.
    "SELECT sum(l_extendedprice * l_discount) FROM {t} AS l WHERE l_shipdate >= DATE '1994-01-01' \
     AND l_shipdate < DATE '1995-01-01' AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24",
    // Of query 12, without orders.
    "SELECT l_shipmode, count(*) FROM {t} AS l WHERE l_commitdate < l_receiptdate AND l_shipdate < l_commitdate \
     GROUP BY l_shipmode",
    // Of query 18, joined with itself.
    "SELECT a.l_orderkey, sum(a.l_quantity) FROM {t} AS a JOIN (SELECT l_orderkey FROM {t} AS b GROUP BY l_orderkey \
     HAVING sum(l_quantity) > 150) big ON big.l_orderkey = a.l_orderkey GROUP BY a.l_orderkey",
    "SELECT count(*), count(l_comment), max(l_tax), count(DISTINCT l_orderkey) FROM {t} AS l",
];
