//! The `portcullis` process: arguments in, exit code out.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// Many sessions that come and rest leave holes that glibc's allocator does not give back.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    portcullis::cli::run()
}
