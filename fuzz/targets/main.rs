//! One target under libFuzzer: `portcullis-fuzz --target=NAME [CORPUS]… [-flag=value]…`.
//!
//! libFuzzer skips what begins with two dashes, so that the name can stand among its own arguments. Must hold no
//! target.
#![no_main]

use std::io::{self, Write};
use std::sync::LazyLock;

libfuzzer_sys::fuzz_target!(|data: &[u8]| TARGET(data));

static TARGET: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let wanted = std::env::args().find_map(|word| word.strip_prefix("--target=").map(str::to_owned));
    let all = portcullis_fuzz::targets();
    if let Some((_, run)) = all.iter().find(|(name, _)| wanted.as_deref() == Some(*name)) {
        return *run;
    }
    let names: Vec<_> = all.iter().map(|(name, _)| *name).collect();
    let _ = writeln!(io::stderr(), "say `--target=NAME`, one of: {}", names.join(", "));
    std::process::exit(EX_USAGE)
});

const EX_USAGE: i32 = 64;
