//! `cargo xtask fuzz`: builds the fuzz targets and gives each of them some time.
//!
//! libFuzzer with the compiler's own coverage, on the stable toolchain and without sanitizers. This program stands in
//! front of rustc and adds the flags for the crates of the workspace alone, so that the engine is built once for
//! everything. What a run finds is kept below the target folder and never in the repository.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use crate::Places;
use crate::protoc;
use crate::run::{Trouble, answers, say, succeed};
use crate::rust::cargo;

/// What to run, and for how long.
pub(crate) struct Order {
    /// For each target.
    seconds: u32,
    /// All of them where this is empty.
    targets: Vec<String>,
}

impl Order {
    /// What follows `fuzz` on the command line: `--seconds N [TARGET]…`.
    pub(crate) fn parse(words: &[&str]) -> Option<Self> {
        let ["--seconds", seconds, targets @ ..] = words else { return None };
        let seconds = seconds.parse().ok().filter(|seconds| (1..=A_DAY).contains(seconds))?;
        let is_name = |name: &&str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        let targets = targets.iter().map(|name| is_name(name).then(|| (*name).to_owned())).collect::<Option<_>>()?;
        Some(Self { seconds, targets })
    }
}

/// Builds and runs; every target gets its time, also after one has found something.
pub(crate) fn run(places: &Places, order: &Order) -> Result<(), Trouble> {
    let compiler = answers(Command::new("c++").arg("--version"));
    if !compiler {
        return Err(Trouble::new("`c++` does not work; install a C++ compiler, such as Debian's `g++`".to_owned()));
    }
    let seeds = places.root.join("fuzz/corpus");
    let names = names(&seeds, order)?;
    protoc::prepare(places)?;
    build(places)?;
    let mut found = Vec::new();
    for name in &names {
        match fuzz(places, &seeds, name, order.seconds) {
            Ok(line) => say(&line),
            Err(trouble) => {
                say(&format!("{name}: {trouble}"));
                found.push(name.as_str());
            }
        }
    }
    if found.is_empty() { Ok(()) } else { Err(Trouble::new(format!("found something in: {}", found.join(", ")))) }
}

/// Every target has a folder of seeds, so the folders are the list.
fn names(seeds: &Path, order: &Order) -> Result<Vec<String>, Trouble> {
    let cannot = |error| Trouble::new(format!("cannot read `{}`: {error}", seeds.display()));
    let mut known = Vec::new();
    for folder in fs::read_dir(seeds).map_err(cannot)? {
        known.push(folder.map_err(cannot)?.file_name().to_string_lossy().into_owned());
    }
    known.sort();
    if let Some(unknown) = order.targets.iter().find(|name| !known.contains(name)) {
        return Err(Trouble::new(format!("there is no target `{unknown}`; there are: {}", known.join(", "))));
    }
    Ok(if order.targets.is_empty() { known } else { order.targets.clone() })
}

fn build(places: &Places) -> Result<(), Trouble> {
    let own = std::env::current_exe().map_err(|error| Trouble::new(format!("cannot find this program: {error}")))?;
    succeed(
        cargo(places)
            .args(["build", "--package", "portcullis-fuzz", "--features", "libfuzzer,gate", "--target-dir"])
            .arg(&places.target)
            .env("RUSTC_WORKSPACE_WRAPPER", own),
    )
}

/// Runs one target and gives back the line that says how it went.
fn fuzz(places: &Places, seeds: &Path, name: &str, seconds: u32) -> Result<String, Trouble> {
    let folder = places.target.join("fuzz").join(name);
    let corpus = folder.join("corpus");
    let cannot = |error| Trouble::new(format!("cannot write to `{}`: {error}", folder.display()));
    fs::create_dir_all(&corpus).map_err(cannot)?;
    let log = folder.join("log");
    let output = fs::File::create(&log).map_err(cannot)?;
    let mut prefix = folder.clone().into_os_string();
    prefix.push("/");
    let mut artifacts = OsString::from("-artifact_prefix=");
    artifacts.push(prefix);
    let program = places.binaries.join("portcullis-fuzz");
    let ended = Command::new(&program)
        .arg(format!("--target={name}"))
        // What is new goes to the first folder.
        .args([&corpus, &seeds.join(name)])
        .arg(format!("-max_total_time={seconds}"))
        .args(["-rss_limit_mb=2048", "-timeout=10", "-print_final_stats=1"])
        .arg(artifacts)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(output)
        .status()
        .map_err(|error| Trouble::new(format!("cannot run `{}`: {error}", program.display())))?;
    // What the targets print comes from strangers as well.
    let text = String::from_utf8_lossy(&fs::read(&log).map_err(cannot)?).into_owned();
    if ended.success() {
        return summary(name, seconds, &text)
            .ok_or_else(|| Trouble::new(format!("it did not say what it did; its output is in `{}`", log.display())));
    }
    let input = text.lines().find_map(|line| line.split_once("Test unit written to ")).map(|(_, path)| path);
    let why = text.lines().skip_while(|line| !is_verdict(line)).take_while(|line| *line != "stack backtrace:");
    let why = why.take(6).collect::<Vec<_>>().join("\n  ");
    Err(Trouble::new(format!(
        "ended with {ended}\n  {why}\n  input: {}\n  output: {}",
        input.unwrap_or("none was written"),
        log.display()
    )))
}

fn is_verdict(line: &str) -> bool {
    line.contains("' panicked at ") || line.contains(") panicked at ") || line.contains("ERROR: libFuzzer")
}

/// From `#1234 DONE cov: 5 ft: 6 corp: 7/8b …` and the statistics behind it.
fn summary(name: &str, seconds: u32, text: &str) -> Option<String> {
    let done = text.lines().rev().find(|line| line.starts_with('#') && line.contains("DONE"))?;
    let runs = done.trim_start_matches('#').split_whitespace().next()?;
    let behind = |label: &str| done.split_whitespace().skip_while(|word| *word != label).nth(1);
    let (coverage, corpus) = (behind("cov:")?, behind("corp:")?);
    let speed = text.lines().find_map(|line| line.strip_prefix("stat::average_exec_per_sec:")).map(str::trim)?;
    let inputs = corpus.split('/').next()?;
    Some(format!("{name:<24} {runs:>10} runs in {seconds} s ({speed}/s), coverage {coverage}, corpus {inputs}"))
}

/// Whether cargo has started this program as a compiler: `xtask …/rustc --crate-name …`.
pub(crate) fn is_compiler(words: &[OsString]) -> bool {
    words.first().is_some_and(|word| Path::new(word).file_stem() == Some(OsStr::new("rustc")))
}

/// Runs the compiler with what a fuzz target needs besides.
pub(crate) fn compile(words: &[OsString]) -> ExitCode {
    let Some((compiler, words)) = words.split_first() else { return ExitCode::FAILURE };
    let mut command = Command::new(compiler);
    command.args(words);
    if is_for_the_target(words) {
        command.args(FLAGS);
    }
    match command.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("error: cannot run the compiler: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Cargo also asks the compiler about itself, and builds what runs during the build: that must not be instrumented.
fn is_for_the_target(words: &[OsString]) -> bool {
    let behind = |flag: &str| words.iter().skip_while(|word| *word != flag).nth(1).and_then(|word| word.to_str());
    match behind("--crate-name") {
        None | Some("___" | "build_script_build") => false,
        Some(_) => behind("--crate-type") != Some("proc-macro"),
    }
}

const FLAGS: [&str; 12] = [
    "-C",
    "passes=sancov-module",
    "-C",
    "llvm-args=-sanitizer-coverage-level=4",
    "-C",
    "llvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-C",
    "llvm-args=-sanitizer-coverage-pc-table",
    "-C",
    "llvm-args=-sanitizer-coverage-trace-compares",
    "--cfg",
    "fuzzing",
];
const A_DAY: u32 = 24 * 60 * 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_has_a_time_and_perhaps_targets() {
        let order = Order::parse(&["--seconds", "60", "jwt", "session_token"]);
        assert!(order.is_some_and(|order| order.seconds == 60 && order.targets == ["jwt", "session_token"]));
        assert!(Order::parse(&["--seconds", "1"]).is_some_and(|order| order.targets.is_empty()));
        for bad in
            [&[][..], &["60"], &["--seconds"], &["--seconds", "0"], &["--seconds", "x"], &["--seconds", "1", "../x"]]
        {
            assert!(Order::parse(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn the_last_lines_of_a_run_are_understood() {
        let text = "#2\tINITED cov: 6 ft: 6 corp: 1/1b exec/s: 0 rss: 27Mb\n\
            #1854513\tDONE   cov: 13 ft: 14 corp: 4/13b lim: 4096 exec/s: 168592 rss: 27Mb\n\
            Done 1854513 runs in 11 second(s)\n\
            stat::number_of_executed_units: 1854513\n\
            stat::average_exec_per_sec:     168592\n";
        let line = "jwt                         1854513 runs in 11 s (168592/s), coverage 13, corpus 4";
        assert_eq!(summary("jwt", 11, text).as_deref(), Some(line));
        assert_eq!(summary("jwt", 11, "#2\tINITED cov: 6\n"), None);
    }

    #[test]
    fn only_crates_that_are_fuzzed_are_instrumented() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert!(
            is_compiler(&words("/usr/bin/rustc -vV")) && !is_compiler(&words("fuzz --seconds 1")) && !is_compiler(&[])
        );
        assert!(is_for_the_target(&words("--crate-name portcullis --edition=2024 src/lib.rs --crate-type lib")));
        for line in [
            "-vV",
            "- --crate-name ___ --print=file-names",
            "--crate-name build_script_build --crate-type bin",
            "--crate-name x --crate-type proc-macro",
        ] {
            assert!(!is_for_the_target(&words(line)), "{line}");
        }
    }
}
