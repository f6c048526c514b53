//! Where lines go: a file that may be renamed under us, or anything else that takes bytes.
//!
//! Must not know what a line is, except that it ends.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The writer's end of the audit log.
pub(super) enum Target {
    /// A file, by its path.
    File { path: PathBuf, file: File },
    /// What was handed to us open.
    Writer(Box<dyn Write + Send>),
}

/// Where the next byte goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reopened {
    /// Into a file that begins, or at least begins a line.
    New,
    /// Behind the last one.
    Same,
}

impl Target {
    pub(super) fn file(path: PathBuf) -> io::Result<Self> {
        open(&path).map(|file| Self::File { path, file })
    }

    /// A new file of the same path. On failure nothing changes.
    pub(super) fn reopen(&mut self) -> io::Result<Reopened> {
        match self {
            Self::File { path, file } => {
                *file = open(path)?;
                Ok(Reopened::New)
            }
            Self::Writer(_) => Ok(Reopened::Same),
        }
    }
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::File { file, .. } => file.write(bytes),
            Self::Writer(writer) => writer.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::File { file, .. } => file.flush(),
            Self::Writer(writer) => writer.flush(),
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    refuse_pipe(path)?;
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true);
    // From its first byte on: who did what is nobody else's business.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    if ends_within_a_line(&mut file)? {
        // A process died, or a disk was full, half-way through its last line. Ours must not be glued to it.
        file.write_all(b"\n")?;
    }
    Ok(file)
}

/// Opening one waits for its reader, for ever.
#[cfg(unix)]
fn refuse_pipe(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt as _;

    match std::fs::metadata(path) {
        Ok(found) if found.file_type().is_fifo() => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "a pipe cannot be the audit log"))
        }
        // Opening says what is wrong, if anything is.
        Ok(_) | Err(_) => Ok(()),
    }
}

#[cfg(not(unix))]
fn refuse_pipe(_path: &Path) -> io::Result<()> {
    Ok(())
}

fn ends_within_a_line(file: &mut File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(false);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

#[cfg(test)]
mod tests;
