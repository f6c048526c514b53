//! The `portcullis` process: arguments in, exit code out.

use std::process::ExitCode;

fn main() -> ExitCode {
    portcullis::cli::run()
}
