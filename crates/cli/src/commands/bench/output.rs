//! The files for results.

use super::arguments::Arguments;
use crate::cli::Failure;
use lanefs_bench::{Record, TargetSpec};
use std::fs::{File, Metadata};
use std::io::{Seek, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The files of `--json` and `--report`. Both files are opened before measuring, so that a wrong
/// path fails at once. They keep their old contents until there are results to write.
pub struct Output {
    json: Option<OutputFile>,
    report: Option<OutputFile>,
}

struct OutputFile {
    path: PathBuf,
    file: File,
    /// Whether this run created the file and has not written to it yet.
    is_empty: bool,
}

impl Output {
    /// Opens the files.
    ///
    /// # Errors
    /// If a file cannot be written to, if the two files are the same, or if a file is also a
    /// target.
    pub fn open(arguments: &Arguments) -> Result<Output, Failure> {
        let open = |path: &Option<PathBuf>| path.as_deref().map(OutputFile::open).transpose();
        let output = Output { json: open(&arguments.json)?, report: open(&arguments.report)? };
        if let (Some(json), Some(report)) = (&output.json, &output.report) {
            report.check_is_not(&json.path)?;
        }
        let measured: Vec<PathBuf> = arguments.targets.iter().flat_map(parts).collect();
        for place in [&output.json, &output.report].into_iter().flatten() {
            measured.iter().try_for_each(|path| place.check_is_not(path))?;
        }
        Ok(output)
    }

    /// Writes the results of a run. If one file fails, the other is still written.
    ///
    /// # Errors
    /// The first error, if a file cannot be written.
    pub fn save(self, record: &Record) -> Result<(), Failure> {
        let json = self
            .json
            .map_or(Ok(()), |place| place.write(&format!("{:#}\n", lanefs_bench::json(record))));
        let report = self.report.map_or(Ok(()), |place| place.write(&lanefs_bench::html(record)));
        json.and(report)
    }
}

/// Returns the files and devices of a target.
fn parts(spec: &TargetSpec) -> Vec<PathBuf> {
    let TargetSpec::Image(path) = spec else { return Vec::new() };
    match path.to_str().and_then(|path| path.strip_prefix("md:")) {
        Some(members) => members.split(',').map(PathBuf::from).collect(),
        None => vec![path.clone()],
    }
}

/// Returns whether `one` and `other` are the same regular file or block device. False for a
/// terminal or a null device.
fn is_one_file(one: &Metadata, other: &Metadata) -> bool {
    let is_kept = one.is_file() || one.file_type().is_block_device();
    is_kept && (one.dev(), one.ino()) == (other.dev(), other.ino())
}

impl OutputFile {
    fn open(path: &Path) -> Result<OutputFile, Failure> {
        let failed = Failure::on_host(path);
        let mut options = File::options();
        options.write(true);
        let (file, is_empty) = match options.clone().create_new(true).open(path) {
            Ok(file) => (file, true),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                (options.open(path).map_err(&failed)?, false)
            }
            Err(error) => return Err(failed(error)),
        };
        Ok(OutputFile { path: path.into(), file, is_empty })
    }

    /// Checks that `path` is not this file.
    ///
    /// # Errors
    /// If `path` is this file.
    fn check_is_not(&self, path: &Path) -> Result<(), Failure> {
        let (Ok(mine), Ok(other)) = (self.file.metadata(), path.metadata()) else { return Ok(()) };
        match is_one_file(&mine, &other) {
            true => Err(Failure::new(
                self.path.display(),
                format_args!(
                    "it is the same file as {}, which would be overwritten",
                    path.display()
                ),
            )),
            false => Ok(()),
        }
    }

    fn write(mut self, text: &str) -> Result<(), Failure> {
        self.is_empty = false;
        let file = &mut self.file;
        let written = file.metadata().and_then(|metadata| {
            // A pipe or a terminal has no length.
            if metadata.is_file() {
                file.set_len(0)?;
                file.rewind()?;
            }
            file.write_all(text.as_bytes())
        });
        written.map_err(Failure::on_host(&self.path))
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if self.is_empty {
            // The run created this file but has no results for it, so the file is removed. An error
            // while removing it is ignored.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_there_once_something_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let (new, old) = (dir.path().join("new"), dir.path().join("old"));
        let before = "what was there before, and longer";
        std::fs::write(&old, before).unwrap();
        let places = [&new, &old].map(|path| OutputFile::open(path).unwrap());
        assert_eq!(std::fs::read_to_string(&old).unwrap(), before);
        drop(places);
        assert!(!new.exists() && old.exists());
        for path in [&new, &old] {
            OutputFile::open(path).unwrap().write("figures").unwrap();
            assert_eq!(std::fs::read_to_string(path).unwrap(), "figures");
        }
        OutputFile::open(Path::new("/dev/null")).unwrap().write("figures").unwrap();
        assert!(OutputFile::open(&dir.path().join("no/such")).is_err());
        assert!(OutputFile::open(dir.path()).is_err());
    }
}
