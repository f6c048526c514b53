//! The demo's tables: TPC-H at a scale, as Parquet files, made once per directory and scale.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use arrow::array::RecordBatchReader;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::{Compression, ZstdLevel};
use datafusion::parquet::file::properties::WriterProperties;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator, PartSuppGenerator,
    RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RegionArrow, SupplierArrow,
};

use super::Ended;

/// The tables of `scale` below `dir`: made when they are not there yet.
pub(super) fn make(dir: &Path, scale: f64) -> Result<Vec<(&'static str, PathBuf)>, Ended> {
    let dir = dir.join(format!("scale-{scale}"));
    fs::create_dir_all(&dir).map_err(|error| failed(&dir, error))?;
    let mut tables = Vec::with_capacity(TABLES.len());
    for table in TABLES {
        let file = dir.join(format!("{table}.parquet"));
        if !file.exists() {
            let beside = file.with_extension("new");
            write(&beside, rows(table, scale))?;
            // Only a whole file has the name that is looked for.
            fs::rename(&beside, &file).map_err(|error| failed(&file, error))?;
        }
        tables.push((*table, file));
    }
    Ok(tables)
}

fn rows(table: &str, scale: f64) -> Box<dyn RecordBatchReader> {
    match table {
        "customer" => Box::new(CustomerArrow::new(CustomerGenerator::new(scale, 1, 1))),
        "lineitem" => Box::new(LineItemArrow::new(LineItemGenerator::new(scale, 1, 1))),
        "nation" => Box::new(NationArrow::new(NationGenerator::default())),
        "orders" => Box::new(OrderArrow::new(OrderGenerator::new(scale, 1, 1))),
        "part" => Box::new(PartArrow::new(PartGenerator::new(scale, 1, 1))),
        "partsupp" => Box::new(PartSuppArrow::new(PartSuppGenerator::new(scale, 1, 1))),
        "region" => Box::new(RegionArrow::new(RegionGenerator::default())),
        _ => Box::new(SupplierArrow::new(SupplierGenerator::new(scale, 1, 1))),
    }
}

fn write(file: &Path, rows: Box<dyn RecordBatchReader>) -> Result<(), Ended> {
    let out = File::create(file).map_err(|error| failed(file, error))?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_max_row_group_row_count(Some(ROW_GROUP))
        .build();
    let mut writer = ArrowWriter::try_new(out, rows.schema(), Some(properties)).map_err(|error| failed(file, error))?;
    for batch in rows {
        let batch = batch.map_err(|error| failed(file, error))?;
        writer.write(&batch).map_err(|error| failed(file, error))?;
    }
    writer.close().map(drop).map_err(|error| failed(file, error))
}

fn failed(file: &Path, error: impl std::fmt::Display) -> Ended {
    Ended::Configuration(format!("cannot write `{}`: {error}", file.display()))
}

const TABLES: &[&str] = &["customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier"];
const ROW_GROUP: usize = 256 * 1024;
